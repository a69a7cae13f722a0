"""How a table of an owner's becomes the records that a card asks about."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from fedbourse.errors import InvalidInput
from fedbourse.units import number
from fedbourse.wire.plain_text import plain_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME_MAX = 200
_SIZE_MAX = 1e50  # numbers up to it become features up to 2e100, far from where doubles end


@dataclass(frozen=True)
class Column:
    """One column of numbers: a feature is (number - shift) / scale."""

    name: str
    shift: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        """Check every item once."""
        _named("a column's name", self.name)
        number("shift", self.shift, at_least=-_SIZE_MAX, at_most=_SIZE_MAX)
        number("scale", self.scale, at_least=1 / _SIZE_MAX, at_most=_SIZE_MAX)


@dataclass(frozen=True)
class Layout:
    """The columns of a record in their order, public numbers that scale them, and the label.

    The constant 1, which is every record's last feature, is no column.
    """

    columns: tuple[Column, ...]
    label: str
    """The column that holds what is to be predicted."""
    classes: tuple[str, ...] = ()
    """What labels of each class look like; none where they are the class numbers themselves, or
    where any number is a label."""

    def __post_init__(self) -> None:
        """Check every item once."""
        _named("the label's column", self.label)
        for name in self.classes:
            _named("a class's name", name)
        if not self.columns or not all(isinstance(each, Column) for each in self.columns):
            raise InvalidInput("a layout needs columns; found none, or something else")
        names = [column.name for column in self.columns] + [self.label]
        for what, words in (("columns", names), ("classes", list(self.classes))):
            if len(set(words)) != len(words):
                twice = next(word for word in words if words.count(word) > 1)
                raise InvalidInput(
                    f"a layout names its {what} once each; found {twice!r:.60} twice"
                )

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Layout:
        """Read a layout from its document."""
        known = {field.name for field in fields(cls)}
        if not isinstance(document, dict) or not {"columns", "label"} <= set(document) <= known:
            raise InvalidInput(
                "a card's layout must be an object with columns, label and perhaps classes; "
                f"found {document!r:.80}"
            )
        columns, classes = document["columns"], document.get("classes", [])
        if not isinstance(columns, list) or not isinstance(classes, list):
            raise InvalidInput("a layout's columns and classes must be lists; found something else")
        return cls(tuple(_column(each) for each in columns), document["label"], tuple(classes))

    @property
    def document(self) -> dict[str, Any]:
        """Return the layout as a plain document."""
        return {
            "columns": [
                {"name": column.name, "shift": column.shift, "scale": column.scale}
                for column in self.columns
            ],
            "label": self.label,
            "classes": list(self.classes),
        }


def _column(document: object) -> Column:
    known = {field.name for field in fields(Column)}
    if not isinstance(document, dict) or not {"name"} <= set(document) <= known:
        raise InvalidInput(
            f"a column must be an object with name, shift and scale; found {document!r:.80}"
        )
    return Column(**document)


def _named(what: str, text: object) -> None:
    if not isinstance(text, str) or not text.strip() or len(text) > _NAME_MAX:
        raise InvalidInput(f"{what} must be 1 to {_NAME_MAX} characters; found {text!r:.60}")
    plain_text(f"in a layout, {what}", text)
