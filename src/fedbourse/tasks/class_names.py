"""How labels are spelled where a card names its classes: one rule, for one label at a time."""

from __future__ import annotations

import re
from decimal import Decimal

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_LENGTH_MAX = 400
_BOOLEANS = {"true": True, "True": True, "TRUE": True}
_BOOLEANS |= {"false": False, "False": False, "FALSE": False}


def is_decimal(text: str) -> bool:
    """Say whether text is a decimal number: digits, perhaps a sign, a point and an exponent.

    >>> [is_decimal(text) for text in ("-1.5e3", ".5", "1,5", "0x10", "1_000", "nan", "")]
    [True, True, False, False, False, False, False]
    """
    return len(text) <= _LENGTH_MAX and _DECIMAL.fullmatch(text) is not None


def boolean_of(text: str) -> bool | None:
    """Return what a word for true or false stands for; None where it is another one."""
    return _BOOLEANS.get(text)


def class_key(text: str) -> str | Decimal:
    """Return what a class's name, or a label that is text, stands for.

    Two texts name the same class where they are the same but for blanks around them, where both
    are numbers of the same value, or where both are true, or both false, in small or capital
    letters.

    >>> class_key("3") == class_key(" 3.0 "), class_key("True") == class_key("true")
    (True, True)
    >>> class_key("1") == class_key("true"), class_key("Late") == class_key("late")
    (False, False)
    """
    text = text.strip(" \t")
    if is_decimal(text):
        return Decimal(text)
    return text.lower() if text in _BOOLEANS else text
