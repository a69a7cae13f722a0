"""Texts that people write and every client reads: without characters that nobody can see."""

from __future__ import annotations

import re

from fedbourse.errors import InvalidInput

_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")


def plain_text(name: str, text: str) -> str:
    """Return a text if it holds no control character but tabs and line ends, and no half of one.

    >>> plain_text("reason", "no longer needed")
    'no longer needed'
    """
    match = _UNREADABLE.search(text)
    if match is not None:
        raise InvalidInput(
            f"{name} must hold no control characters; found U+{ord(match[0]):04X} at place "
            f"{match.start() + 1}: leave it out"
        )
    return text
