"""No record shows, from an owner's file to the last update, beyond what was charged for it.

Whatever one record holds, whether it is there at all, and in whatever form the data comes: every
message and every decision of a device is the same, and updates differ by no more than the noise is
sized for. Planted faults show that this would be seen.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from device.end_to_end import (
    Distinguished,
    FixedNoise,
    Observed,
    Start,
    check_alike,
    through_flower,
    through_the_market,
)
from device.neighbours import FORMS, Neighbours, Shape, neighbours
from fedbourse.device import agent as agent_module
from fedbourse.device import data as data_module
from fedbourse.device.data import check_data, check_schema, device_records
from fedbourse.device.round_responder import RoundResponder
from fedbourse.device.table_files import CsvFile
from fedbourse.errors import InvalidData, InvalidInput
from fedbourse.flower.device import FlowerDevice
from fedbourse.learning.sources.files import read_table
from fedbourse.tasks.layout import Column, Layout
from fedbourse.testing.databases import MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable

    Way = Callable[[Shape, Any], Observed]

SECRET = b"a secret of the device"


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Start:
    return Start.make(tmp_path_factory.mktemp("way"), sqlite_template)


@pytest.fixture(scope="module")
def ways(start: Start) -> dict[str, Way]:
    return {
        "market": lambda shape, source: through_the_market(start, shape.card, source),
        "flower": lambda shape, source: through_flower(start, shape.recipe, source),
        "updates": updates_only,
    }


def updates_only(shape: Shape, source: Any) -> Observed:
    """Compute updates as a device does, at a few models, with neither market nor Flower."""
    recipe = shape.recipe
    check_schema(recipe, source)
    own = device_records(recipe, source, secret=SECRET)
    noise, model = FixedNoise([recipe.terms(0.5)]), recipe.build()
    rng = np.random.default_rng(0)
    updates = []
    for number, size in enumerate((0.0, 0.3, 1e3, 1e150)):
        parameters = rng.standard_normal(model.dimension) * size
        mean = model.clipped_means(parameters, own.federation, clip=shape.clip)
        updates.append(noise.release(mean, np.array([0]), number)[0])
    return Observed((), tuple(updates), noise.charged)


def check(case: Neighbours, way: Way) -> None:
    """Refuse two neighbours that can be told apart on one of the ways."""
    folder = Path(tempfile.mkdtemp(prefix="fb-one-", dir=MEMORY))
    try:
        here, there = (way(case.shape, source) for source in case.sources(folder))
        check_alike(here, there)
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("way", "examples"), [("updates", 100), ("flower", 10), ("market", 4)])
def test_one_record_shows_in_nothing_but_what_was_charged(form, way, examples, ways) -> None:
    @settings(max_examples=examples)
    @given(case=neighbours(form))
    def law(case: Neighbours) -> None:
        check(case, ways[way])

    law()


# Neighbours by hand, one for each fault below.

LAYOUT = Layout((Column("x0"),), "y", ("1", "0"))
SHAPE = Shape(width=1, layout=LAYOUT, classes=2, samples=8, clip=1.0)
LINES = [b"1.5,1"] * 8
UNKNOWN_CLASS = Neighbours("csv", SHAPE, LINES, [*LINES[1:], b"1.5,oui"])
ODD_NUMBER = Neighbours("csv", SHAPE, LINES, [*LINES[1:], b"tall,1"])
OPEN_QUOTE = Neighbours("csv", SHAPE, LINES, [b'"1.5,1', *LINES[1:]])
ONE_LESS = Neighbours("csv", SHAPE, LINES, LINES[1:])
BY_HAND = {
    "unknown class": UNKNOWN_CLASS,
    "odd number": ODD_NUMBER,
    "open quote": OPEN_QUOTE,
    "one less": ONE_LESS,
}


@pytest.mark.parametrize("way", ["market", "flower"])
@pytest.mark.parametrize("name", BY_HAND)
def test_neighbours_by_hand_are_alike(name: str, way: str, ways) -> None:
    check(BY_HAND[name], ways[way])


def test_all_of_the_way_was_walked(ways, tmp_path: Path) -> None:
    """Otherwise two runs that fail at the start would be alike."""
    source = UNKNOWN_CLASS.sources(tmp_path)[1]
    seen = ways["market"](SHAPE, source)
    assert len(seen.updates) == SHAPE.card.rounds
    targets = [(message[0], message[1].rpartition("/")[2]) for message in seen.messages[:-2]]
    for said in (("PUT", "interest"), ("PUT", "plan"), ("POST", "terms"), ("PUT", "update")):
        assert said in targets
    assert seen.messages[-2] == "ended"
    assert seen.messages[-1] > 0
    assert len(ways["flower"](SHAPE, source).updates) == SHAPE.recipe.rounds


def labels_by_all(read):
    """Hole (a): one label that is no class name, and all labels are read as class numbers."""

    def faulty(card: Any, data: Any) -> Any:
        table = read(card, data)
        if any(group.reason == "unknown class" for group in table.misfits):
            numbered = replace(card, layout=replace(card.layout, classes=()))
            table = read(numbered, data)
        return table

    return faulty


def joined_by_all(check_schema):
    """Hole (b): a device joins only where all its records fit."""

    def faulty(card: Any, data: Any) -> None:
        check_schema(card, data)
        if check_data(card, data).misfits:
            raise InvalidData("a record does not fit")

    return faulty


def joined_by_count(check_schema):
    """A device joins only where it has m records."""

    def faulty(card: Any, data: Any) -> None:
        check_schema(card, data)
        if check_data(card, data).records < card.samples:
            raise InvalidData("too few records")

    return faulty


def inferred_types(read):
    """A column's type is inferred from all that it holds: one odd cell, and none is a number."""

    def faulty(self: CsvFile, rule: Any, spec: Any) -> Any:
        with suppress(InvalidInput):
            read_table(self.path, spec.layout.label)
            return read(self, rule, spec)
        return rule.read_rows([])

    return faulty


def one_parser(read):
    """The lines of a file are parsed together, so that an open quote swallows those that follow."""

    def faulty(self: CsvFile, rule: Any, spec: Any) -> Any:
        content = Path(self.path).read_text()
        Path(self.path).write_text(content.partition('"')[0])
        table = read(self, rule, spec)
        Path(self.path).write_text(content)
        return table

    return faulty


def refused_by_records(update):
    """A round is refused where a record does not fit."""

    def faulty(self: RoundResponder, request: Any) -> Any:
        if len(self._owner.records(self.deal)) < self.deal.card.samples:
            raise InvalidData("not enough records fit")
        return update(self, request)

    return faulty


def agreed_by_records(agree):
    """An owner agrees to a recipe only where all its records fit."""

    def faulty(self: FlowerDevice, recipe: Any, budget: float, records: Any, **options: Any) -> Any:
        if len(records()) < recipe.samples:
            raise InvalidData("not enough records fit")
        return agree(self, recipe, budget, records, **options)

    return faulty


FAULTS = {
    "labels by all, market": (labels_by_all, data_module, "_read", UNKNOWN_CLASS, "market"),
    "labels by all, flower": (labels_by_all, data_module, "_read", UNKNOWN_CLASS, "flower"),
    "joined by all": (joined_by_all, agent_module, "check_schema", UNKNOWN_CLASS, "market"),
    "joined by count": (joined_by_count, agent_module, "check_schema", ONE_LESS, "market"),
    "inferred types, market": (inferred_types, CsvFile, "read", ODD_NUMBER, "market"),
    "inferred types, flower": (inferred_types, CsvFile, "read", ODD_NUMBER, "flower"),
    "one parser": (one_parser, CsvFile, "read", OPEN_QUOTE, "market"),
    "refused": (refused_by_records, RoundResponder, "update", ODD_NUMBER, "market"),
    "agreed": (agreed_by_records, FlowerDevice, "agree", ONE_LESS, "flower"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_seen(name: str, ways, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, place, attribute, case, way = FAULTS[name]
    monkeypatch.setattr(place, attribute, plant(getattr(place, attribute)))
    with pytest.raises(Distinguished):
        check(case, ways[way])


@pytest.mark.parametrize(
    ("plant", "place", "attribute"),
    [(labels_by_all, data_module, "_read"), (inferred_types, CsvFile, "read")],
)
def test_neighbours_that_hypothesis_draws_show_a_planted_fault(
    plant, place, attribute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, attribute, plant(getattr(place, attribute)))

    # The first pair that shows it is enough.
    one = {"phases": [Phase.generate], "report_multiple_bugs": False}

    @settings(max_examples=2000, database=None, **one)
    @given(case=neighbours("csv").filter(lambda case: case.shape.layout is not None))
    def law(case: Neighbours) -> None:
        check(case, updates_only)

    with pytest.raises(Distinguished):
        law()
