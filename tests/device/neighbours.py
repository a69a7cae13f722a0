"""Hypothesis draws a card, an owner's data, and the same data but for one record, in every form.

A record may be anything at all that its form can hold: a line of any bytes in CSV, any cell of the
declared types in Parquet, Arrow and NPZ, any Python objects in arrays, lists and iterators.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from pyarrow import parquet

from fedbourse.device import DataSource, FileData
from fedbourse.flower.recipe import Recipe
from fedbourse.learning.models import model_named
from fedbourse.tasks.card import TaskCard
from fedbourse.tasks.layout import Column, Layout
from fedbourse.testing.small_card import SMALL_CARD

ROUNDS = 2
NAMES = [("cat", "dog"), ("1", "0"), ("True", "False"), ("3", "7", "x"), (" a", "A", "10")]
Form = Callable[["Shape", list[Any], Path], DataSource]


@dataclass(frozen=True)
class Shape:
    """What a record must have: a card's layout, or as many numbers as it says."""

    width: int
    layout: Layout | None
    classes: int
    samples: int
    clip: float

    @property
    def model(self) -> str:
        """A model whose gradients are not all alike at the start."""
        return "hidden:2" if self.classes else "least-squares"

    @property
    def _items(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "features": self.width + 1,
            "classes": self.classes,
            "samples": self.samples,
            "clip": self.clip,
            "rounds": ROUNDS,
            "layout": None if self.layout is None else self.layout.document,
        }

    @property
    def card(self) -> TaskCard:
        """Return the card of a task whose model stays where it starts."""
        dimension = model_named(self.model, features=self.width + 1, classes=self.classes).dimension
        # So that all rounds ask both neighbours about the same model.
        still = {"dimension": dimension, "step_size": 5e-324, "loss": "any", "max_rho": 100.0}
        # Long on a device's own clock, but not so long that a round without an update never ends.
        # A device asks every 20 seconds of the market's clock while the buyer may still look.
        spans = {"tick_s": 600.0, "plans_s": 36000.0, "review_s": 60.0, "round_s": 600.0}
        still |= {"deadlines": spans}
        return TaskCard.of(SMALL_CARD | self._items | still)

    @property
    def recipe(self) -> Recipe:
        """Return the same for Flower."""
        items = {"name": "t", "data": "records", "step_size": 0.5, "aggregation": "equal"}
        return Recipe.of(self._items | items)


GOOD = st.sampled_from([0.0, 1.0, 0.1, 3.0, 4.5])
"""Numbers that fit every column."""
NUMBERS = st.sampled_from([-0.0, -3.5, 40.0, 1e-300, 7e49, -7e49])
"""Numbers that fit most columns."""


def mostly(usual: st.SearchStrategy[Any], *others: Any) -> st.SearchStrategy[Any]:
    """Draw what is usual three times out of four."""
    odd = st.one_of(*others)
    return st.integers(0, 3).flatmap(lambda turn: usual if turn else odd)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Draw what a card says of records."""
    width = draw(st.integers(1, 2))
    names = draw(st.one_of(st.just(()), st.sampled_from(NAMES)))
    classes = len(names) or draw(st.sampled_from([0, 2, 3]))
    columns = tuple(
        Column(
            f"x{i}",
            shift=draw(st.sampled_from([0.0, 2.5, -1e50])),
            scale=draw(st.sampled_from([1.0, 0.1, 1e-50, 1e50])),
            low=draw(st.sampled_from([None, 0.0, -5.0])),
            high=draw(st.sampled_from([None, 5.0, 1e6])),
        )
        for i in range(width)
    )
    layout = Layout(columns, "y", names) if names or draw(st.booleans()) else None
    return Shape(
        width=width,
        layout=layout,
        classes=classes,
        samples=draw(st.integers(1, 6)),
        clip=draw(st.sampled_from([1.0, 0.01])),
    )


def labels(shape: Shape) -> st.SearchStrategy[Any]:
    """Draw labels that fit."""
    if shape.layout is not None and shape.layout.classes:
        return st.sampled_from(shape.layout.classes)
    return st.integers(0, shape.classes - 1) if shape.classes else GOOD


ODD_TEXTS = st.one_of(
    st.sampled_from(
        ["", " ", "nan", "inf", "-1e999", "1e40000", "1,5", '"', '""', "'", "\r", "x\x00", "1_0",
         "true", "FALSE", "1.0", "\ufeff1", "９", "maybe", "0x1p3", "9" * 500]
    ),
    st.text(max_size=6),
)  # fmt: skip
OBJECTS = st.one_of(
    ODD_TEXTS,
    st.floats(),
    st.integers(),
    st.sampled_from([None, True, b"1", [1.0], {}, 10**400, Decimal("sNaN"), 1j, object()]),
)


# Each form: how records are drawn, and how data is made from a list of them.


def _csv_line(cells: list[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue().encode(errors="surrogatepass").replace(b"\n", b" ")


def csv_records(shape: Shape) -> st.SearchStrategy[bytes]:
    """Draw a line: one that fits, one with odd cells, or any bytes."""
    good = st.tuples(*[GOOD] * shape.width, labels(shape)).map(list)
    cells = [st.one_of(ODD_TEXTS, NUMBERS, GOOD)] * shape.width
    near = st.tuples(*cells, st.one_of(ODD_TEXTS, labels(shape))).map(list)
    odd = st.lists(st.one_of(ODD_TEXTS, GOOD, labels(shape)), max_size=shape.width + 2)
    anything = st.binary(max_size=12).map(lambda line: line.replace(b"\n", b""))
    return mostly(good.map(_csv_line), near.map(_csv_line), odd.map(_csv_line), anything)


def csv_data(shape: Shape, records: list[bytes], folder: Path) -> DataSource:
    """Write a .csv file."""
    names = [f"x{i}" for i in range(shape.width)]
    label = "y" if shape.layout else "label"
    file = folder / "own.csv"
    file.write_bytes(b"\n".join([",".join([*names, label]).encode(), *records]) + b"\n")
    return FileData(str(file))


TYPES: dict[Any, st.SearchStrategy[Any]] = {
    pa.float64(): mostly(GOOD, NUMBERS, st.floats(), st.none()),
    pa.int64(): mostly(st.integers(0, 4), st.integers(-(2**63), 2**63 - 1), st.none()),
    pa.bool_(): mostly(st.booleans(), st.none()),
    pa.string(): mostly(GOOD.map(repr), ODD_TEXTS.filter(str.isprintable), st.none()),
    pa.decimal128(5, 2): mostly(st.decimals(0, 4, places=2), st.decimals(-99, 99, places=2)),
}


@st.composite
def arrow_records(draw: st.DrawFn, shape: Shape) -> st.SearchStrategy[Any]:
    """Draw a schema, and return a strategy of rows: the cells, and their types."""
    kinds = tuple(draw(st.sampled_from(list(TYPES))) for _ in range(shape.width))
    named = shape.layout is not None and bool(shape.layout.classes)
    label = draw(st.sampled_from([pa.string(), pa.dictionary(pa.int8(), pa.string())]))
    label = label if named else draw(st.sampled_from([pa.float64(), pa.int64(), pa.string()]))
    good = labels(shape).map({pa.int64(): int, pa.float64(): float}.get(label, str))
    other = TYPES.get(label, TYPES[pa.string()])
    rows = st.tuples(*(TYPES[kind] for kind in kinds), mostly(good, other, st.none()))
    return rows.map(lambda row: (row, (*kinds, label)))


def arrow_table(shape: Shape, records: list[Any]) -> pa.Table:
    """Return a table; the schema does not depend on which records there are."""
    names = [f"x{i}" for i in range(shape.width)] + ["y" if shape.layout else "label"]
    kinds = records[0][1] if records else [pa.float64()] * (shape.width + 1)
    columns = [pa.array([row[i] for row, _ in records], kind) for i, kind in enumerate(kinds)]
    return pa.table(dict(zip(names, columns, strict=True)))


def parquet_data(shape: Shape, records: list[Any], folder: Path) -> DataSource:
    """Write a .parquet file."""
    parquet.write_table(arrow_table(shape, records), folder / "own.parquet")
    return FileData(str(folder / "own.parquet"))


def arrow_data(shape: Shape, records: list[Any], folder: Path) -> DataSource:
    """Write an .arrow file."""
    table = arrow_table(shape, records)
    with pa.ipc.new_file(folder / "own.arrow", table.schema) as writer:
        writer.write_table(table)
    return FileData(str(folder / "own.arrow"))


def table_data(shape: Shape, records: list[Any], folder: Path) -> DataSource:
    """Return an Arrow table in memory."""
    table = arrow_table(shape, records)
    return lambda card: table


@st.composite
def array_records(draw: st.DrawFn, shape: Shape) -> st.SearchStrategy[Any]:
    """Draw the types of two arrays, and return a strategy of rows: cells, label and types."""
    kind = draw(st.sampled_from(["f8", "f4", "i8", "?", "U6"]))
    cells = {
        "f8": mostly(GOOD, NUMBERS, st.floats()),
        "f4": mostly(GOOD, st.floats(width=32)),
        "i8": mostly(st.integers(0, 4), st.integers(-(2**63), 2**63 - 1)),
        "?": st.booleans(),
        "U6": mostly(GOOD.map(repr), ODD_TEXTS),
    }[kind]
    named = shape.layout is not None and bool(shape.layout.classes)
    good = labels(shape)
    label = mostly(good, ODD_TEXTS if named else st.floats())
    rows = st.tuples(st.tuples(*[cells] * shape.width), label)
    return rows.map(lambda row: (*row, (kind, "U6" if named else "f8")))


def _arrays(shape: Shape, records: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    kind, label = records[0][2] if records else ("f8", "f8")
    table = np.array([row for row, _, _ in records], dtype=kind).reshape(-1, shape.width)
    return table, np.array([each for _, each, _ in records], dtype=label)


def npz_data(shape: Shape, records: list[Any], folder: Path) -> DataSource:
    """Write a .npz file."""
    table, column = _arrays(shape, records)
    np.savez(folder / "own.npz", X=table, y=column)
    return FileData(str(folder / "own.npz"))


def arrays_data(shape: Shape, records: list[Any], folder: Path) -> DataSource:
    """Return two arrays."""
    pair = _arrays(shape, records)
    return lambda card: pair


def object_records(shape: Shape) -> st.SearchStrategy[Any]:
    """Draw a pair of Python objects, mostly one that fits."""
    good = st.tuples(st.tuples(*[GOOD] * shape.width), labels(shape))
    cells = st.lists(st.one_of(GOOD, NUMBERS, OBJECTS), max_size=shape.width + 2)
    odd = st.tuples(st.one_of(cells, OBJECTS), st.one_of(labels(shape), OBJECTS))
    return mostly(good, odd, OBJECTS, st.just(ValueError("no record")))


class Pairs:
    """An iterator that yields records, and raises those that are exceptions."""

    def __init__(self, records: list[Any]) -> None:
        """Begin with the first."""
        self._records = iter(records)

    def __iter__(self) -> Pairs:
        """Return itself."""
        return self

    def __next__(self) -> Any:
        """Return the next, or raise it."""
        record = next(self._records)
        if isinstance(record, Exception):
            raise record
        return record


def iterator_data(shape: Shape, records: list[Any], folder: Path) -> DataSource:
    """Return pairs one by one."""
    return lambda card: Pairs(records)


def lists_data(shape: Shape, records: list[Any], folder: Path) -> DataSource:
    """Return a list of features and a list of labels; what is no pair has neither."""
    pairs = [each if isinstance(each, tuple) else (None, each) for each in records]
    return lambda card: ([each[0] for each in pairs], [each[-1] for each in pairs])


def of_objects(shape: Shape) -> st.SearchStrategy[st.SearchStrategy[Any]]:
    """Return what draws Python objects; no types are declared."""
    return st.just(object_records(shape))


def of_lines(shape: Shape) -> st.SearchStrategy[st.SearchStrategy[Any]]:
    """Return what draws lines; no types are declared."""
    return st.just(csv_records(shape))


FORMS: dict[str, tuple[Callable[[Shape], Any], Form]] = {
    "csv": (of_lines, csv_data),
    "parquet": (arrow_records, parquet_data),
    "arrow": (arrow_records, arrow_data),
    "npz": (array_records, npz_data),
    "arrow in memory": (arrow_records, table_data),
    "arrays": (array_records, arrays_data),
    "lists": (of_objects, lists_data),
    "iterator": (of_objects, iterator_data),
}


@dataclass(frozen=True)
class Neighbours:
    """Two owners' data that differ in one record, and what a card asks of it."""

    form: str
    shape: Shape
    here: list[Any]
    there: list[Any]

    def sources(self, folder: Path) -> list[DataSource]:
        """Return both, each in a folder of its own but under the same name."""
        made = []
        for name, records in (("here", self.here), ("there", self.there)):
            (folder / name).mkdir(exist_ok=True)
            made.append(FORMS[self.form][1](self.shape, records, folder / name))
        return made


@st.composite
def neighbours(draw: st.DrawFn, form: str) -> Neighbours:
    """Draw data and the same with one record exchanged, added or removed, anywhere."""
    shape = draw(shapes())
    record = draw(FORMS[form][0](shape))
    here = draw(st.lists(record, min_size=draw(st.sampled_from([0, 3, 7])), max_size=9))
    row, new = draw(st.integers(0, len(here))), draw(record)
    change = draw(st.sampled_from(["exchange", "add", "remove"]))
    there = {
        "exchange": [*here[:row], new, *here[row + 1 :]],
        "add": [*here[:row], new, *here[row:]],
        "remove": here[:row] + here[row + 1 :],
    }[change]
    return Neighbours(form, shape, here, there)
