"""The shapes of responses, derived from the records that they show.

A shape is for the API's document alone: no response is checked against it.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Sequence
from dataclasses import is_dataclass
from functools import cache
from itertools import pairwise
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import Field, create_model

from fedbourse.encoding.documents import shown_items
from fedbourse.tasks.card import TaskCard
from fedbourse.web import cards
from fedbourse.web.bodies import Body
from fedbourse.web.examples import EXAMPLES


@cache
def shape(record: type) -> type[Body]:
    """Return the shape of a record; the docstring of each item is its description."""
    descriptions = {
        name: text
        for kind in reversed(record.__mro__[:-1])
        for name, text in _descriptions(kind.__module__)[kind.__name__].items()
    }
    items: dict[str, Any] = {
        name: (_shaped(hint), Field(description=descriptions.get(shown_items(record)[name])))
        for name, hint in _hints(record).items()
    }
    return create_model(
        record.__name__,
        __base__=Body,
        __doc__=inspect.getdoc(record),
        __cls_kwargs__={
            "json_schema_extra": {"example": _example(record)},
            "use_attribute_docstrings": False,  # a class statement has them, and a search is slow
        },
        **items,
    )


def _hints(record: type) -> dict[str, Any]:
    hints = get_type_hints(record, include_extras=True)
    return {name: hints[own] for name, own in shown_items(record).items()}


def _shaped(hint: Any) -> Any:
    """Return a type with shapes in place of records; ``Annotated`` names the shape itself."""
    if hint is TaskCard:
        return cards.CardDocument
    if isinstance(hint, type) and is_dataclass(hint):
        return shape(hint)
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _shaped(parts[1])
    if origin in (Union, UnionType):
        return Union[tuple(_shaped(part) for part in parts)]  # noqa: UP007 - of any number
    return list[_shaped(parts[0])] if origin is Sequence else hint  # type: ignore[misc]


def _example(hint: Any) -> Any:
    """Return an example of a type that is made of records, or has one value; None for others."""
    if hint is TaskCard:
        return cards.FULL_EXAMPLE
    if isinstance(hint, type) and is_dataclass(hint):
        return {name: _item(hint, name, kind) for name, kind in _hints(hint).items()}
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _example(parts[0])
    if origin is Sequence:
        part = _example(parts[0])
        return None if part is None else [part]
    if origin is Literal and len(parts) == 1:
        return parts[0]
    return _example(parts[1]) if origin is Annotated else None


def _item(record: type, name: str, hint: Any) -> Any:
    own = f"{record.__name__}.{name}"
    if own in EXAMPLES:
        return EXAMPLES[own]
    example = _example(hint)
    return EXAMPLES.get(name) if example is None else example


@cache
def _descriptions(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of the items of a module's classes."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        kind.name: {
            ast.unparse(item.target): inspect.cleandoc(str(text.value.value))
            for item, text in pairwise(kind.body)
            if isinstance(item, ast.AnnAssign)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        }
        for kind in tree.body
        if isinstance(kind, ast.ClassDef)
    }
