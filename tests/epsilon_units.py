"""What every screen owes its reader: each epsilon says what it is about."""

import re

_EPSILON = re.compile(r"epsilon ([0-9][0-9.,e+]*|without bound)(.{0,24})", re.DOTALL)


def check_epsilon_units(screen: str) -> None:
    """Fail where an epsilon in a sentence does not say that it is about one record.

    The figure about the whole owner must be on the same screen.
    """
    text = " ".join(re.sub(r"<[^>]+>", " ", screen).split())
    for number, after in _EPSILON.findall(text):
        assert re.match(r" about (any )?one record", after), f"epsilon {number}{after}"
    assert re.search(r"about (any )?one record|one record", text), text
    assert "whole owner" in text, text
