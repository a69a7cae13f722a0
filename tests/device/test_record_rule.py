"""What a record becomes depends on this record and the card alone, however records come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse.device.arrow_tables import read_arrow
from fedbourse.device.record_rule import Misfit, RawRecord, Record, RecordRule, RecordTable
from fedbourse.tasks.layout import Column, Layout

CELLS = st.one_of(
    st.floats(),
    st.integers(),
    st.sampled_from([0, 1, 2, 1e50, -0.0, True, None, "", "1", "yes", "no", "nan", b"1", [1]]),
    st.text(max_size=4),
)


@dataclass(frozen=True)
class Spec:
    """What a card says of records."""

    layout: Layout | None
    features: int
    classes: int
    samples: int = 10


COLUMNS = (
    Column("a", shift=3.0, scale=0.1),
    Column("b", shift=-1e50, scale=1e-50, low=-5.0),
    Column("c", high=7.5),
)
SPECS = {
    "named": Spec(Layout(COLUMNS, "y", ("yes", "no")), 4, 2),
    "numbered": Spec(Layout(COLUMNS, "y"), 4, 3),
    "numbers": Spec(Layout(COLUMNS, "y", label_low=0.0), 4, 0),
    "no layout": Spec(None, 4, 2),
}


def each(spec: Spec, raws: list[RawRecord]) -> list[Record]:
    """Return what records become, each for itself."""
    outcomes = [RecordRule(spec).record(raw) for raw in raws]
    return [outcome for outcome in outcomes if isinstance(outcome, Record)]


def same(table: RecordTable, expected: list[Record], count: int) -> None:
    assert table.count == count
    assert len(table.labels) == len(expected) == count - sum(each.count for each in table.misfits)
    for features, label, record in zip(table.features, table.labels, expected, strict=True):
        assert tuple(features) == record.features
        assert label == record.label


def objects(column: list[object]) -> np.ndarray:
    array = np.empty(len(column), dtype=object)
    array[:] = column
    return array


@given(
    spec=st.sampled_from(list(SPECS.values())),
    rows=st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), max_size=12),
)
def test_columns_of_objects_are_read_as_their_records_are(spec: Spec, rows: list[Any]) -> None:
    raws = [RawRecord(row[:3], row[3]) for row in rows]
    rule, expected = RecordRule(spec), each(spec, raws)
    same(rule.read_rows(enumerate(raws, start=1)), expected, len(rows))
    columns = [[row[i] for row in rows] for i in range(4)]
    same(rule.read_columns(columns[:3], columns[3]), expected, len(rows))
    *features, labels = map(objects, columns)
    same(rule.read_columns(features, labels), expected, len(rows))


NUMBERS = {
    "float64": st.floats(),
    "float32": st.floats(width=32),
    "int64": st.one_of(st.integers(-3, 9), st.integers(-(2**63), 2**63 - 1)),
    "uint64": st.one_of(st.integers(0, 9), st.integers(0, 2**64 - 1)),
    "bool": st.booleans(),
}


@given(
    spec=st.sampled_from(list(SPECS.values())),
    kind=st.sampled_from(list(NUMBERS)),
    data=st.data(),
)
def test_arrays_of_numbers_are_read_as_their_records_are(spec: Spec, kind: str, data) -> None:
    rows = data.draw(st.lists(st.tuples(*[NUMBERS[kind]] * 4), max_size=12))
    table = np.array(rows, dtype=kind).reshape(-1, 4)
    expected = each(spec, [RawRecord(row[:3].tolist(), row[3].item()) for row in table])
    same(RecordRule(spec).read_columns(list(table.T[:3]), table[:, 3]), expected, len(rows))
    arrow = pa.table({name: pa.array(table[:, i]) for i, name in enumerate("abcy")})
    same(read_arrow(arrow, RecordRule(spec), spec, name="t", label="y"), expected, len(rows))


@given(
    rows=st.lists(
        st.tuples(
            st.one_of(st.none(), st.floats()),
            st.one_of(st.none(), st.text(max_size=3), st.integers(-9, 9).map(str)),
            st.one_of(st.none(), st.decimals(-9, 9, places=2)),
            st.sampled_from(["yes", "no", "maybe", None]),
        ),
        max_size=12,
    )
)
def test_arrow_columns_with_blanks_texts_and_decimals_are_read_as_their_records(rows) -> None:
    types = (pa.float64(), pa.string(), pa.decimal128(9, 2), pa.dictionary(pa.int8(), pa.string()))
    columns = [pa.array([row[i] for row in rows], types[i]) for i in range(4)]
    spec = SPECS["named"]
    raws = [RawRecord([c[i].as_py() for c in columns[:3]], row[3]) for i, row in enumerate(rows)]
    table = pa.table(dict(zip("abcy", columns, strict=True)))
    same(read_arrow(table, RecordRule(spec), spec, name="t"), each(spec, raws), len(rows))


def test_one_cell_that_arrow_cannot_show_hides_no_other() -> None:
    texts = pa.array([b"1", b"\xff", b"2"]).view(pa.string())
    moments = pa.array([0, 2**62, 1], pa.int64()).view(pa.timestamp("s"))
    spec = Spec(Layout((Column("a"),), "y"), 2, 0)
    for column, fit in ((texts, 2), (moments, 0)):
        table = pa.table({"a": column, "y": [1.0, 2.0, 3.0]})
        assert len(read_arrow(table, RecordRule(spec), spec, name="t").labels) == fit


@pytest.mark.parametrize("cells", [[1, 2], [1, 2, 3, 4], []])
def test_a_record_of_another_width_does_not_fit(cells: list[int]) -> None:
    misfit = RecordRule(SPECS["named"]).record(RawRecord(cells, "yes"))
    assert isinstance(misfit, Misfit)
    assert misfit.shown == f"{len(cells)} cells instead of 3"


@pytest.mark.parametrize(("last", "fits"), [(1, True), ("1.0", True), (2, False), (None, False)])
def test_without_a_layout_the_constant_may_stand_at_the_end(last: object, fits: bool) -> None:
    record = RecordRule(SPECS["no layout"]).record(RawRecord([5, 6, 7, last], 1))
    assert isinstance(record, Record) == fits
    if fits:
        assert record == ((5.0, 6.0, 7.0, 1.0), 1.0)


def test_misfits_are_counted_by_reason_and_column_with_the_first_of_them() -> None:
    rows = [(1, 2, 3, "yes")] * 3 + [(None, 2, 3, "yes"), (1, -6, 3, "no"), (1, 2, 3, "oui")]
    rows += [("x", 2, 3, "yes"), ("y\x1b[31m", 2, 3, "yes"), ("z" * 90, 2, 3, "yes")] * 2
    raws = [RawRecord(row[:3], row[3]) for row in rows]
    table = RecordRule(SPECS["named"]).read_rows(enumerate(raws, start=2))
    groups = [(each.reason, each.column, each.count, each.rows) for each in table.misfits]
    assert groups == [
        ("not a number", "a", 6, (8, 9, 10)),
        ("blank", "a", 1, (5,)),
        ("out of range", "b", 1, (6,)),
        ("unknown class", "y", 1, (7,)),
    ]
    assert [each.shown for each in table.misfits] == ["'x'", "None", "-6", "'oui'"]


def test_what_is_shown_of_a_cell_is_short_and_harms_no_terminal() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError

    for cell in ("\x1b[31m\n" * 50, Odd(), 10**5000, object()):
        misfit = RecordRule(SPECS["named"]).record(RawRecord([cell, 1, 1], "yes"))
        assert isinstance(misfit, Misfit)
        assert misfit.shown.isprintable()
        assert 0 < len(misfit.shown) <= 40


def test_no_more_records_are_read_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbourse.device.record_rule._RECORDS_MAX", 5)
    endless = ((i, RawRecord([1, 2, 3], "yes")) for i in iter(int, 1))
    assert RecordRule(SPECS["named"]).read_rows(endless).count == 5
