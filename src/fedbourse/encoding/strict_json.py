"""JSON from strangers: read strictly, at a cost that grows no faster than its length."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NoReturn

from fedbourse.errors import InvalidInput

DEPTH_MAX = 20
DIGITS_MAX = 18
"""Whole numbers of this many digits fit the databases' 64 bits."""
_NUMBER_MAX = 60
_SMALL_BYTES = 2**16
"""What is no longer takes little memory, whatever it holds."""


def read_json(content: bytes, *, bytes_per_value_min: int = 0) -> Any:
    """Return the document in a body; one with too many values for its size is refused.

    >>> read_json(b'{"reward": 2.5}')
    {'reward': 2.5}
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"a body must be UTF-8; byte {error.start} is not") from None
    if len(content) > _SMALL_BYTES and bytes_per_value_min:
        # Before anything is made of them. Commas in texts count too, and are never so many.
        values = 1 + sum(map(text.count, ",[{"))
        if values * bytes_per_value_min > len(content):
            raise InvalidInput(
                f"a body of {len(content)} bytes holds about {values} values; at most one in "
                f"{bytes_per_value_min} bytes is read"
            )
    try:
        document = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"the body is not valid JSON: {error.msg[:1].lower()}{error.msg[1:80]} at line "
            f"{error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        _too_deep()
    _check(document)
    return document


def _check(document: Any) -> None:
    """Refuse what is nested too deeply, and text that no database can hold."""
    level = [document]
    for depth in range(DEPTH_MAX + 1):
        if depth == DEPTH_MAX and any(isinstance(node, dict | list) for node in level):
            _too_deep()
        inner: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                inner.extend(node)
                inner.extend(node.values())
            elif isinstance(node, list):
                inner.extend(node)
            elif isinstance(node, str):
                _check_text(node)
        if not inner:
            return
        level = inner


def _check_text(text: str) -> None:
    if "\x00" in text:
        raise InvalidInput("a text in the body holds the character \\u0000; leave it out")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidInput(
                "a text in the body holds half a surrogate pair; write the whole character"
            ) from None


def _too_deep() -> NoReturn:
    raise InvalidInput(f"the body is nested too deeply; {DEPTH_MAX} levels are allowed")


def _whole(text: str) -> int:
    # Before int(), whose cost grows with the square of the digits.
    if len(text.lstrip("-")) > DIGITS_MAX:
        raise InvalidInput(
            f"a whole number has at most {DIGITS_MAX} digits; found {len(text.lstrip('-'))}"
        )
    return int(text)


def _fraction(text: str) -> float:
    if len(text) > _NUMBER_MAX:
        raise InvalidInput(
            f"a number is written in at most {_NUMBER_MAX} characters; found {len(text)}"
        )
    value = float(text)
    if not math.isfinite(value):
        raise InvalidInput(f"a number must be finite; found {text}")
    return value


def _constant(text: str) -> NoReturn:
    raise InvalidInput(f"a number must be finite; found {text}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    items = dict(pairs)
    if len(items) != len(pairs):
        count = Counter(key for key, _ in pairs)
        raise InvalidInput(f"an object in the body holds {count.most_common(1)[0][0]!a:.60} twice")
    return items


_DECODER = json.JSONDecoder(
    parse_int=_whole,
    parse_float=_fraction,
    parse_constant=_constant,
    object_pairs_hook=_object,
)
