"""Values from every kind of column; what is not a number is named."""

import decimal
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fedbourse import InvalidGame, equilibrium

NUMBERS = [1.0, 1.5, 2.0]


@pytest.mark.parametrize(
    "column",
    [
        NUMBERS,
        tuple(NUMBERS),
        np.array(NUMBERS),
        np.array(NUMBERS, dtype=np.float32),
        np.array(NUMBERS, dtype=object),
        np.ma.array(NUMBERS),
        pd.Series(NUMBERS),
        pd.Series(NUMBERS, index=[9, 8, 7]),
        pd.Series(NUMBERS, dtype="Float64"),
        pl.Series(NUMBERS),
        pa.array(NUMBERS),
        pa.chunked_array([NUMBERS[:1], NUMBERS[1:]]),
        [decimal.Decimal("1"), 1.5, 2],
        (v for v in NUMBERS),
        pd.DataFrame({"value": NUMBERS}),
        pd.DataFrame({"value": NUMBERS}, dtype="Float64", index=[9, 8, 7]),
        pl.DataFrame({"value": NUMBERS}),
        pl.LazyFrame({"value": NUMBERS}),
        pa.table({"value": NUMBERS}),
    ],
    ids=lambda column: type(column).__module__ + "." + type(column).__name__,
)
@pytest.mark.parametrize("cost", ["linear", "quadratic"])
def test_every_kind_of_column_gives_the_same_game(column, cost) -> None:
    if not hasattr(column, "__len__"):
        column = iter(NUMBERS)
    result = equilibrium(column, reward=1.0, cost=cost)
    assert result.dense().tolist() == equilibrium(NUMBERS, reward=1.0, cost=cost).dense().tolist()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1, math.nan], r"values\[1\] must be a finite number above 0; found nan"),
        ([math.inf, 1], r"values\[0\] must be a finite number above 0; found inf"),
        ([1, 2, 0], r"values\[2\] must be a finite number above 0; found 0"),
        ([1, -2], r"values\[1\] must be a finite number above 0; found -2"),
        ([1, 10**400], r"values\[1\] must be a finite number above 0; found inf"),
        ([1, None], r"values\[1\] must be a number; found None"),
        ([1, "2"], r"values\[\d\] must be a number; found '\d'"),
        ([True, False], r"values\[0\] must be a number; found True"),
        ([1, 2j], r"values\[\d\] must be a number; found"),
        ([[1, 2], [3]], "one column of numbers; found nested lists"),
        ([[1, 2], [3, 4]], r"found an array of shape \(2, 2\)"),
        ([], "at least two owners; found 0"),
        ([1], r"at least two owners; found 1 \(one owner alone has no best response\)"),
        (3.0, "must be a list, an array, a file, or a pandas, Arrow or .*; found float"),
        (b"123", "found bytes"),
        ({1: 2}, "found dict"),
        (None, "found NoneType"),
        (np.ma.array([1.0, 2.0], mask=[False, True]), r"values\[1\] .* found a masked entry"),
        (pd.Series([1.0, None]), r"values\[1\] must be a finite number above 0; found nan"),
        (pd.Series([1, None], dtype="Int64"), r"values\[1\] must be .*; found nan"),
        (pl.Series([1.0, None]), r"values\[1\] must be a finite number above 0; found nan"),
        (pa.array([1.0, None]), r"values\[1\] must be a finite number above 0; found nan"),
        (np.array([1, 2], dtype="m8[ns]"), "found dates or times"),
        (pd.DataFrame({"a": [1, 2], "b": [1, 2]}), "found a frame of 2: a, b; choose one"),
        (pl.DataFrame({"a": [1, 2], "b": [1, 2]}), "found a frame of 2: a, b; choose one"),
        (pl.LazyFrame({"a": [1, 2], "b": [1, 2]}), "found a frame of 2: a, b; choose one"),
        (pd.DataFrame({"a": [1, math.nan]}), r"values\[1\] must be .*; found nan"),
        (pl.DataFrame({"a": [1, None]}), r"values\[1\] must be .*; found nan"),
        (np.ones((2, 1)), r"found an array of shape \(2, 1\)"),
    ],
)
@pytest.mark.parametrize("cost", ["linear", "quadratic"])
def test_what_is_no_value_is_named(values, words, cost) -> None:
    with pytest.raises(InvalidGame, match=words):
        equilibrium(values, reward=1.0, cost=cost)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"entry_cost": -1}, "entry_cost must be a finite number of at least 0; found -1"),
        ({"entry_cost": math.nan}, "entry_cost must be .* found nan"),
        (
            {"entry_cost": [1, 2, 3]},
            "entry_cost must hold one number for each of 2 owners; found 3",
        ),
        ({"entry_cost": [0.1, -1]}, r"entry_cost\[1\] must be a finite number of at least 0"),
        ({"caps": [1, math.nan]}, r"caps\[1\] must be a number of at least 0; found nan"),
        ({"caps": -1}, "caps must be"),
    ],
)
def test_bad_entry_costs_and_caps_are_named(arguments, words) -> None:
    with pytest.raises(InvalidGame, match=words):
        equilibrium([1.0, 1.0], reward=1.0, **arguments)
