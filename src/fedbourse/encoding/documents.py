"""Records as plain documents: each item by its name in messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

_NAME = "wire_name"
NOT_SHOWN: Mapping[str, str | None] = {_NAME: None}
"""The metadata of an item that no document shows."""


def shown_as(name: str) -> Mapping[str, str]:
    """Return the metadata of an item that documents show by another name."""
    return {_NAME: name}


@cache
def shown_items(record: type) -> dict[str, str]:
    """Return the names that documents have for a record's items, and the items' own names."""
    names = {item.name: item.metadata.get(_NAME, item.name) for item in fields(record)}
    return {name: own for own, name in names.items() if name is not None}


def plain(thing: Any) -> Any:
    """Return a record as a plain document, with all records that are in it.

    >>> from dataclasses import dataclass, field
    >>> @dataclass
    ... class Paid:
    ...     to: str
    ...     amount: int = field(metadata=shown_as("amount_micro"))
    ...     note: str = field(default="", metadata=NOT_SHOWN)
    >>> plain([Paid("owner:ann", 5)])
    [{'to': 'owner:ann', 'amount_micro': 5}]
    """
    if is_dataclass(thing) and not isinstance(thing, type):
        items = shown_items(type(thing)).items()
        return {name: plain(getattr(thing, own)) for name, own in items}
    if isinstance(thing, Mapping):
        return {name: plain(item) for name, item in thing.items()}
    if isinstance(thing, frozenset):
        return sorted(thing)
    if isinstance(thing, list | tuple):
        return [plain(item) for item in thing]
    return thing.value if isinstance(thing, Enum) else thing
