"""One number per owner, from whatever column the caller has.

NumPy arrays, lists, pandas, Arrow and Polars columns, frames of one column and lazy frames all
become one-dimensional NumPy arrays; whatever is not a number is refused with its position and the
value found. What is still in a file is read before (``column_files``).
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbourse.errors import InvalidGame, InvalidInput
from fedbourse.units import number

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def column(name: str, data: object, *, start: int = 0, where: str = "") -> npt.NDArray[Any]:
    """Return ``data`` as a one-dimensional array of real numbers, in its own precision.

    ``start`` and ``where`` say where its first entry stands, for error messages.
    """
    array = _as_array(name, _one_column(name, data))
    if array.ndim != 1:
        raise InvalidGame(
            f"{name} must be one column of numbers; found an array of shape {array.shape}"
        )
    if array.dtype.kind in "mM":
        raise InvalidGame(f"{name} must be numbers; found dates or times")
    return array if array.dtype.kind in "fiu" else _parse(name, array, start, where)


def positive(name: str, data: object) -> FloatArray:
    """Return ``data`` as float64, every number finite and above 0."""
    array = np.ascontiguousarray(column(name, data), dtype=np.float64)
    refuse_first(name, array, ~((array > 0) & np.isfinite(array)), "a finite number above 0")
    return array


def per_owner(name: str, data: object, owners: int, *, infinite: bool = False) -> FloatArray:
    """Return one number of at least 0 for each owner; a single number stands for everybody."""
    top = math.inf if infinite else np.finfo(float).max
    wanted = "a number of at least 0" if infinite else "a finite number of at least 0"
    if isinstance(data, numbers.Real):
        if infinite and data == math.inf:
            return np.full(owners, math.inf)
        return np.full(owners, number(name, data, at_least=0, error=InvalidGame))
    array = np.ascontiguousarray(column(name, data), dtype=np.float64)
    if len(array) != owners:
        raise InvalidGame(
            f"{name} must hold one number for each of {owners} owners; found {len(array)}"
        )
    refuse_first(name, array, ~((array >= 0) & (array <= top)), wanted)
    return array


def refuse_first(
    name: str,
    array: npt.NDArray[Any],
    wrong: BoolArray,
    wanted: str,
    *,
    start: int = 0,
    where: str = "",
    error: type[InvalidInput] = InvalidGame,
) -> None:
    """Raise ``error`` for the first place where ``wrong`` is true, if there is one."""
    if wrong.any():
        i = int(np.argmax(wrong))
        raise error(f"{name}[{start + i}]{where} must be {wanted}; found {array[i]}")


# Read as integers, the bits of positive finite doubles lie below those of infinity, and those of
# NaN and of every negative number (-0.0 too) above them: one maximum finds them all.
_INFINITY_BITS = np.float64(np.inf).view(np.uint64)


def refuse_bad_bits(name: str, block: FloatArray, start: int, where: str = "") -> float:
    """Return the largest number of a block, every one of which is finite and at least 0."""
    top = block.view(np.uint64).max()
    if top >= _INFINITY_BITS:
        wrong = ~((block > 0) & np.isfinite(block))
        refuse_first(name, block, wrong, "a finite number above 0", start=start, where=where)
    return float(top.view(np.float64))


def _one_column(name: str, data: Any) -> object:
    """Return the column of a frame that has one; anything else as it is."""
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):  # a lazy frame
        data = data.collect()
    if not hasattr(data, "columns") or len(np.shape(data)) != 2:
        return data
    names = [str(each) for each in getattr(data, "column_names", data.columns)]
    if len(names) != 1:
        raise InvalidGame(
            f"{name} must be one column; found a frame of {len(names)}: {', '.join(names[:9])}; "
            "choose one of them, as in frame['value']"
        )
    if hasattr(data, "iloc"):  # pandas
        return data.iloc[:, 0]
    return data.column(0) if hasattr(data, "column") else data[names[0]]


def _as_array(name: str, data: object) -> npt.NDArray[Any]:
    if isinstance(data, np.ma.MaskedArray) and np.ma.is_masked(data):
        i = int(np.argmax(np.ma.getmaskarray(data)))
        raise InvalidGame(f"{name}[{i}] must be a number; found a masked entry")
    if isinstance(data, (str, bytes, dict, set)) or not (
        isinstance(data, Iterable) or hasattr(data, "__array__")
    ):
        raise InvalidGame(
            f"{name} must be a list, an array, a file, or a pandas, Arrow or Polars column; "
            f"found {type(data).__name__}"
        )
    try:
        if hasattr(data, "__array__") or isinstance(data, (list, tuple)):
            array = np.asarray(data)
            # Beside texts NumPy turns numbers into texts too; only the texts are wrong.
            return array if array.dtype.kind not in "US" else np.asarray(data, dtype=object)
        return np.asarray(list(data), dtype=object)  # type: ignore[call-overload]
    except (ValueError, TypeError):  # ragged lists
        raise InvalidGame(f"{name} must be one column of numbers; found nested lists") from None


def _parse(name: str, array: npt.NDArray[Any], start: int, where: str) -> FloatArray:
    """Read a column of Python objects; booleans, texts and complex numbers are refused."""
    result = np.empty(len(array))
    for i, item in enumerate(array.tolist()):
        try:
            if isinstance(item, bool) or not hasattr(item, "__float__"):
                raise TypeError
            result[i] = float(item)
        except OverflowError:
            result[i] = math.inf
        except (TypeError, ValueError):
            raise InvalidGame(
                f"{name}[{start + i}]{where} must be a number; found {item!r:.60}"
            ) from None
    return result
