"""One cell is read by one rule: a number, a class, or a reason."""

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse.device.cells import LabelRule, Range, Reason, number_in
from fedbourse.tasks.class_names import class_key

BLANK, NOT_A_NUMBER = Reason.BLANK, Reason.NOT_A_NUMBER
NOT_FINITE, OUT_OF_RANGE = Reason.NOT_FINITE, Reason.OUT_OF_RANGE
UNKNOWN = Reason.UNKNOWN_CLASS


class Hostile(float):
    """A number of an application's own that cannot be had."""

    def __float__(self) -> float:
        raise RuntimeError("no")


NUMBERS = [
    ("1.5", 1.5), (" -2\t", -2.0), ("+.5", 0.5), ("5.", 5.0), ("1e3", 1000.0), ("1E-2", 0.01),
    ("007", 7.0), ("-0", 0.0), ("1e-999", 0.0), ("true", 1.0), ("FALSE", 0.0), ("True", 1.0),
    ("", BLANK), ("  \t", BLANK), (None, BLANK),
    ("nan", NOT_A_NUMBER), ("inf", NOT_A_NUMBER), ("1,5", NOT_A_NUMBER), ("1_000", NOT_A_NUMBER),
    ("0x10", NOT_A_NUMBER), ("1 2", NOT_A_NUMBER), ("٣", NOT_A_NUMBER), ("１", NOT_A_NUMBER),
    ("1e", NOT_A_NUMBER), (".", NOT_A_NUMBER), ("e5", NOT_A_NUMBER), ("1e99999", NOT_A_NUMBER),
    ("\xa01", NOT_A_NUMBER), ("\ud8001", NOT_A_NUMBER), ("1\x00", NOT_A_NUMBER),
    ("9" * 401, NOT_A_NUMBER), ("tRue", NOT_A_NUMBER),
    ("9" * 400, NOT_FINITE), ("1e999", NOT_FINITE), ("-1e308", OUT_OF_RANGE),
    ("1.0000001e50", OUT_OF_RANGE), ("1e50", 1e50),
    (3, 3.0), (2.5, 2.5), (True, 1.0), (Decimal("0.1"), 0.1), (np.float32(0.5), 0.5),
    (np.int8(-3), -3.0), (np.bool_(True), 1.0), (np.str_("4"), 4.0),
    (10**400, OUT_OF_RANGE), (10**60, OUT_OF_RANGE), (math.nan, NOT_FINITE),
    (-math.inf, NOT_FINITE),
    (np.float64("nan"), NOT_FINITE), (Decimal("NaN"), NOT_FINITE), (Decimal("sNaN"), NOT_A_NUMBER),
    (1 + 0j, NOT_A_NUMBER), (b"1", NOT_A_NUMBER), ([1.0], NOT_A_NUMBER), ({}, NOT_A_NUMBER),
    (np.array(1.0), NOT_A_NUMBER), (object(), NOT_A_NUMBER), (Reason.UNREADABLE, Reason.UNREADABLE),
    (np.datetime64("2020-01-01"), NOT_A_NUMBER), (Hostile(1), NOT_A_NUMBER),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(NUMBERS)))
def test_a_cell_is_a_number_or_says_why_not(case: int) -> None:
    cell, number = NUMBERS[case]
    assert number_in(cell, Range()) == number


@pytest.mark.parametrize(
    ("cell", "fits"), [("0", True), ("120", True), (-0.001, False), (121, False)]
)
def test_a_range_includes_its_ends(cell: object, fits: bool) -> None:
    assert (number_in(cell, Range(0.0, 120.0)) is not OUT_OF_RANGE) == fits


def test_a_range_may_be_open_at_either_end() -> None:
    assert number_in(-1e50, Range.between(None, 3.0)) == -1e50
    assert number_in(4, Range.between(None, 3.0)) is OUT_OF_RANGE
    assert number_in(1e50, Range.between(0.0, None)) == 1e50


@given(st.floats(-1e50, 1e50))
def test_a_number_is_itself_also_in_text(number: float) -> None:
    assert number_in(number, Range()) == number_in(repr(number), Range()) == number
    assert number_in(np.float64(number), Range()) == number


@given(st.one_of(st.text(), st.binary(), st.floats(), st.integers(), st.none(), st.decimals()))
def test_whatever_a_cell_holds_nothing_is_raised(cell: object) -> None:
    named, numbered = rule("yes", "no"), rule(classes=3)
    for outcome in (number_in(cell, Range()), named.label_in(cell), numbered.label_in(cell)):
        assert isinstance(outcome, Reason) or math.isfinite(outcome)


def rule(*names: str, classes: int = 0) -> LabelRule:
    keys = {class_key(name): number for number, name in enumerate(names)}
    return LabelRule(keys, len(names) or classes, Range())


LABELS = [
    (("cat", "dog"), " dog ", 1.0), (("cat", "dog"), "Dog", UNKNOWN), (("cat", "dog"), "", BLANK),
    (("cat", "dog"), 1, UNKNOWN), (("cat", "dog"), 0.0, UNKNOWN), (("cat", "dog"), None, BLANK),
    (("cat", "dog"), b"dog", UNKNOWN), (("cat", "dog"), math.nan, NOT_FINITE),
    (("cat", "dog"), ["dog"], UNKNOWN), (("cat", "dog"), 10**5000, OUT_OF_RANGE),
    (("cat", "dog"), "d\udcf6g", UNKNOWN), (("cat", "dog"), Reason.UNREADABLE, Reason.UNREADABLE),
    (("3", "7"), 3, 0.0), (("3", "7"), 7.0, 1.0), (("3", "7"), "7.0", 1.0),
    (("3", "7"), " 3e0", 0.0),
    (("3", "7"), np.int64(7), 1.0), (("3", "7"), np.float32(3), 0.0), (("3", "7"), Decimal(7), 1.0),
    (("3", "7"), 1, UNKNOWN), (("3", "7"), "007", 1.0), (("0.1", "x"), 0.1, 0.0),
    (("True", "False"), "false", 1.0), (("True", "False"), True, 0.0),
    (("True", "False"), np.bool_(False), 1.0), (("True", "False"), 1, UNKNOWN),
    (("1", "0"), True, UNKNOWN), (("1", "0"), "true", UNKNOWN),
    (("9007199254740993", "9007199254740992"), 9007199254740993, 0.0),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(LABELS)))
def test_a_label_is_a_class_by_its_name(case: int) -> None:
    names, cell, label = LABELS[case]
    assert rule(*names).label_in(cell) == label


@pytest.mark.parametrize(
    ("cell", "label"),
    [(0, 0.0), ("2", 2.0), ("2.0", 2.0), (True, 1.0), (3, UNKNOWN), (-1, UNKNOWN), (0.5, UNKNOWN),
     ("cat", NOT_A_NUMBER), ("", BLANK), (math.nan, NOT_FINITE), (1e60, OUT_OF_RANGE)],
)  # fmt: skip
def test_without_names_labels_are_class_numbers(cell, label) -> None:
    assert rule(classes=3).label_in(cell) == label


@pytest.mark.parametrize(("cell", "label"), [("2.5", 2.5), (9, 9.0), (11, OUT_OF_RANGE)])
def test_labels_that_are_numbers_have_a_range(cell, label) -> None:
    assert LabelRule({}, 0, Range(0.0, 10.0)).label_in(cell) == label
