"""Whole money, and numbers that were checked."""

import math
from decimal import Decimal

import pytest

from fedbourse.errors import InvalidNumber
from fedbourse.units import micro_credits, number, whole_number


@pytest.mark.parametrize(
    ("credits", "micro"),
    [
        ("1.25", 1_250_000),
        (3, 3_000_000),
        (Decimal("0.000001"), 1),
        ("-2", -2_000_000),
        ("1e3", 10**9),
    ],
)
def test_credits_become_whole_micro_credits(credits, micro) -> None:
    assert micro_credits(credits) == micro


@pytest.mark.parametrize("credits", ["0.0000001", "ten", "NaN", "Infinity", 0.1, True, None])
def test_what_is_no_exact_sum_of_money_is_refused(credits) -> None:
    with pytest.raises(InvalidNumber, match="credits"):
        micro_credits(credits)


@pytest.mark.parametrize("value", [math.nan, math.inf, 10**400, 0, -1, "1", None, True, [1]])
def test_a_number_in_range_is_asked_for(value) -> None:
    with pytest.raises(InvalidNumber, match=r"^x must be .*; found "):
        number("x", value, above=0)


def test_a_number_of_thousands_of_digits_is_refused_shortly() -> None:
    with pytest.raises(InvalidNumber) as caught:
        number("x", 10**9999, above=0)
    assert len(str(caught.value)) < 120


def test_ranges_are_told() -> None:
    with pytest.raises(InvalidNumber, match="of at least 1 and of at most 2; found 3"):
        number("x", 3, at_least=1, at_most=2)
    with pytest.raises(InvalidNumber, match=r"whole number; found 1\.5"):
        whole_number("x", 1.5, at_least=1)
    assert whole_number("x", 2.0, at_least=1) == 2


@pytest.mark.parametrize(
    ("credits", "micro"),
    [
        ("1.25", 1_250_000),
        ("-3.5", -3_500_000),
        ("1e3", 10**9),
        ("1.00000000000000000000000000000000000000", 10**6),
        ("12345678901234567890123.1234560", 12345678901234567890123123456),
        ("0e99999", 0),
    ],
)
def test_credits_are_turned_into_micro_credits_exactly(credits, micro) -> None:
    assert micro_credits(credits) == micro


@pytest.mark.parametrize(
    ("credits", "sentence"),
    [
        ("1e999999999", "credits must be below 10"),
        ("9" * 10_000, "credits must be below 10"),
        ("1e-7", "at most six decimals; found '1e-7'"),
        ("1e-999999999", "at most six decimals"),
        ("12345678901234567890123456789.1234567", "at most six decimals"),
        ("nan", "whole or decimal number; found 'nan'"),
        (1.5, "whole or decimal number; found 1.5"),
    ],
)
def test_credits_that_are_none_get_one_sentence(credits, sentence) -> None:
    with pytest.raises(InvalidNumber, match=sentence):
        micro_credits(credits)
