"""Records as plain documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import pytest

from fedbourse.encoding.canonical import canonical
from fedbourse.encoding.documents import NOT_SHOWN, plain, shown_as


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Part:
    name: str
    amount: int = field(metadata=shown_as("amount_micro"))
    secret: str = field(default="hush", metadata=NOT_SHOWN)


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    colour: Colour = Colour.RED
    scopes: frozenset[str] = frozenset({"b", "a"})
    none: None = None


WHOLE = Whole((Part("x", 1),))
DOCUMENT = {
    "parts": [{"name": "x", "amount_micro": 1}],
    "colour": "red",
    "scopes": ["a", "b"],
    "none": None,
}


def test_a_document_has_the_names_of_the_wire_and_nothing_that_is_not_shown() -> None:
    assert plain(WHOLE) == DOCUMENT
    assert list(plain(WHOLE)) == list(DOCUMENT)
    assert type(plain(WHOLE)["colour"]) is str


def test_a_record_is_spelt_as_its_document_wherever_it_stands() -> None:
    assert canonical({"all": [WHOLE]}) == canonical({"all": [DOCUMENT]})


@pytest.mark.parametrize("thing", [object(), b"bytes", Whole])
def test_what_is_no_document_is_refused(thing) -> None:
    with pytest.raises(TypeError, match="is no document"):
        canonical({"thing": thing})
