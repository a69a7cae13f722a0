"""What one cell of a record stands for: a number, a class, or nothing that fits.

Every function here takes one cell and what the card says of its column, and nothing else: whatever
other cells hold, this one is read the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.tasks.class_names import boolean_of, class_key, is_decimal
from fedbourse.tasks.layout import NUMBER_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

_BLANKS = " \t"
_NUMBERS = (bool, int, float, Decimal, np.bool_, np.integer, np.floating)


class Reason(Enum):
    """Why a record does not fit a card."""

    BLANK = "blank"
    NOT_A_NUMBER = "not a number"
    NOT_FINITE = "not finite"
    OUT_OF_RANGE = "out of range"
    UNKNOWN_CLASS = "unknown class"
    WRONG_CELLS = "wrong number of cells"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Range:
    """The numbers that fit, both ends included."""

    low: float = -NUMBER_MAX
    high: float = NUMBER_MAX

    @classmethod
    def between(cls, low: float | None, high: float | None) -> Range:
        """Return the range of a card, which may leave either end open."""
        return cls(-NUMBER_MAX if low is None else low, NUMBER_MAX if high is None else high)


def number_in(cell: object, range: Range) -> float | Reason:
    """Return the number that a cell holds, or why it does not fit.

    Text is read by one rule, that of decimal numbers; true and false count as 1 and 0.

    >>> number_in(" 1.5e3 ", Range()), number_in(True, Range()), number_in("1_000", Range())
    (1500.0, 1.0, <Reason.NOT_A_NUMBER: 'not a number'>)
    """
    number: float | Reason = Reason.NOT_A_NUMBER
    if isinstance(cell, Reason):  # a cell that its file could not show
        return cell
    if cell is None or (isinstance(cell, str) and not cell.strip(_BLANKS)):
        return Reason.BLANK
    if isinstance(cell, str):
        text = cell.strip(_BLANKS)
        if is_decimal(text):
            number = float(text)
        elif (truth := boolean_of(text)) is not None:
            number = float(truth)
    elif isinstance(cell, _NUMBERS):
        try:
            number = float(cell)
        except OverflowError:  # a whole number that no double holds
            return Reason.OUT_OF_RANGE
        except Exception:  # a type of the application's own, or a signalling NaN
            return Reason.NOT_A_NUMBER
    if isinstance(number, Reason) or range.low <= number <= range.high:
        return number
    return Reason.OUT_OF_RANGE if math.isfinite(number) else Reason.NOT_FINITE


@dataclass(frozen=True)
class LabelRule:
    """What labels of a card may be: names of classes, class numbers, or numbers."""

    names: Mapping[str | Decimal, int]
    """The class of each name, by what the name stands for; empty where classes have none."""
    classes: int
    """Classes that are told apart; 0 where labels are numbers."""
    range: Range

    def label_in(self, cell: object) -> float | Reason:
        """Return the label that a cell holds, or why it does not fit."""
        if self.names:
            return self._named(cell)
        number = number_in(cell, self.range)
        if isinstance(number, Reason) or not self.classes:
            return number
        is_class = number.is_integer() and 0 <= number < self.classes
        return number if is_class else Reason.UNKNOWN_CLASS

    def _named(self, cell: object) -> float | Reason:
        text = _spelled(cell)
        if isinstance(text, Reason):
            return text
        number = self.names.get(class_key(text))
        return Reason.UNKNOWN_CLASS if number is None else float(number)


def _spelled(cell: object) -> str | Reason:
    """Return how a label is written, or why it cannot name a class."""
    if isinstance(cell, Reason):
        return cell
    if isinstance(cell, str):
        return cell if cell.strip(_BLANKS) else Reason.BLANK
    if isinstance(cell, bool | np.bool_):
        return str(bool(cell))
    if isinstance(cell, int | np.integer):
        return str(int(cell)) if abs(int(cell)) <= NUMBER_MAX else Reason.OUT_OF_RANGE
    number = number_in(cell, Range())
    if isinstance(number, Reason):
        return Reason.UNKNOWN_CLASS if number is Reason.NOT_A_NUMBER else number
    return repr(number)  # the shortest decimal that reads as this double, as people write it
