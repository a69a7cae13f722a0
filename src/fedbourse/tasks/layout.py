"""How a table of an owner's becomes the records that a card asks about."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from fedbourse.encoding.plain_text import plain_text
from fedbourse.errors import InvalidInput
from fedbourse.tasks.class_names import class_key
from fedbourse.units import number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedbourse.learning.data import Source

_NAME_MAX = 200
NUMBER_MAX = 1e50
"""The largest number that fits a column: features are then at most 2e100, which doubles hold."""


@dataclass(frozen=True)
class Column:
    """One column of numbers: a feature is (number - shift) / scale."""

    name: str
    shift: float = 0.0
    scale: float = 1.0
    low: float | None = None
    """The least number that fits; public, as all of a card is."""
    high: float | None = None
    """The largest number that fits."""

    def __post_init__(self) -> None:
        _check_name("a column's name", self.name)
        number("shift", self.shift, at_least=-NUMBER_MAX, at_most=NUMBER_MAX)
        number("scale", self.scale, at_least=1 / NUMBER_MAX, at_most=NUMBER_MAX)
        _check_range(self.low, self.high)

    @property
    def document(self) -> dict[str, Any]:
        """Return the column as a plain document; a bound that is not set is left out."""
        bounds = {"low": self.low, "high": self.high}
        return {"name": self.name, "shift": self.shift, "scale": self.scale} | _set(bounds)


@dataclass(frozen=True)
class Layout:
    """The columns of a record in their order, public numbers that scale them, and the label.

    The constant 1, every record's last feature, is not one of them.
    """

    columns: tuple[Column, ...]
    label: str
    """The column that holds what is to be predicted."""
    classes: tuple[str, ...] = ()
    """What labels of each class look like; none where they are the class numbers themselves, or
    where any number is a label."""
    label_low: float | None = None
    """The least label that fits, where labels are numbers."""
    label_high: float | None = None
    """The largest label that fits, where labels are numbers."""

    def __post_init__(self) -> None:
        _check_name("the label's column", self.label)
        for name in self.classes:
            _check_name("a class's name", name)
        if not self.columns or not all(isinstance(each, Column) for each in self.columns):
            raise InvalidInput("a layout needs columns; found none, or something else")
        names = [column.name for column in self.columns] + [self.label]
        for what, words in (("columns", names), ("classes", list(self.classes))):
            if len(set(words)) != len(words):
                twice = next(word for word in words if words.count(word) > 1)
                raise InvalidInput(
                    f"a layout names its {what} once each; found {twice!r:.60} twice"
                )
        alike: dict[object, str] = {}
        for name in self.classes:
            other = alike.setdefault(class_key(name), name)
            if other is not name:
                raise InvalidInput(
                    "a layout's classes must be different numbers, or different texts; found "
                    f"{other!r:.60} and {name!r:.60}, which a device cannot tell apart"
                )
        _check_range(self.label_low, self.label_high)
        if self.classes and (self.label_low, self.label_high) != (None, None):
            raise InvalidInput(
                "label_low and label_high are for labels that are numbers; the layout names classes"
            )

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Layout:
        """Read a layout from its document."""
        names = {field.name for field in fields(cls)}
        if not isinstance(document, dict) or not {"columns", "label"} <= set(document) <= names:
            raise InvalidInput(
                "a card's layout must be an object with columns, label and perhaps classes, "
                f"label_low and label_high; found {document!r:.80}"
            )
        columns, classes = document["columns"], document.get("classes", [])
        if not isinstance(columns, list) or not isinstance(classes, list):
            raise InvalidInput("a layout's columns and classes must be lists; found something else")
        bounds = {name: document.get(name) for name in ("label_low", "label_high")}
        return cls(
            tuple(_column(each) for each in columns), document["label"], tuple(classes), **bounds
        )

    @property
    def document(self) -> dict[str, Any]:
        """Return the layout as a plain document; a bound that is not set is left out."""
        bounds = {"label_low": self.label_low, "label_high": self.label_high}
        return {
            "columns": [column.document for column in self.columns],
            "label": self.label,
            "classes": list(self.classes),
        } | _set(bounds)


def _column(document: object) -> Column:
    names = {field.name for field in fields(Column)}
    if not isinstance(document, dict) or not {"name"} <= set(document) <= names:
        raise InvalidInput(
            "a column must be an object with name, shift and scale, and perhaps low and high; "
            f"found {document!r:.80}"
        )
    return Column(**document)


def _set(bounds: dict[str, float | None]) -> dict[str, float]:
    return {name: bound for name, bound in bounds.items() if bound is not None}


def _check_range(low: float | None, high: float | None) -> None:
    for name, bound in (("low", low), ("high", high)):
        if bound is not None:
            number(name, bound, at_least=-NUMBER_MAX, at_most=NUMBER_MAX)
    if low is not None and high is not None and low > high:
        raise InvalidInput(f"low must be at most high; found {low:g} and {high:g}")


def _check_name(what: str, text: object) -> None:
    if not isinstance(text, str) or not text.strip() or len(text) > _NAME_MAX:
        raise InvalidInput(f"{what} must be 1 to {_NAME_MAX} characters; found {text!r:.60}")
    plain_text(f"in a layout, {what}", text)


def layout_of(source: Source) -> Layout:
    """Return how a table with a source's columns becomes its records."""
    numbers = zip(
        source.feature_names[:-1],  # the last is the constant 1
        source.scaling.shift.tolist(),
        source.scaling.scale.tolist(),
        strict=True,
    )
    columns = tuple(Column(*each) for each in numbers)
    return Layout(columns, label=source.label, classes=source.class_names)
