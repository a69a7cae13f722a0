"""Records for training: one matrix of features and one column of labels, checked once.

The last feature is the constant 1, so the intercept is a weight like any other. Features are
scaled by public numbers: whatever were computed from owners' records would be unpaid privacy.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

import numpy as np

from fedbourse.errors import InvalidData
from fedbourse.game.array_spans import cores
from fedbourse.game.columns import FloatArray, IntArray, refuse_first
from fedbourse.units import whole_number

_refuse = partial(refuse_first, error=InvalidData)
_BLOCK = 2**17  # doubles: 1 MB fits into a core's second cache
_BLOCK_FOR_THREADS = 2**20  # what it takes until two threads of BLAS are faster than one


class Pool(Protocol):
    """Records to deal out, which may be built only when they are taken; ``Records`` is one."""

    @property
    def classes(self) -> int:
        """The number of classes, or 0 where labels are numbers."""
        ...

    @property
    def labels(self) -> FloatArray:
        """The label of every record."""
        ...

    def __len__(self) -> int: ...

    def take(self, rows: IntArray) -> Records:
        """Return the records at ``rows``, in that order."""
        ...


@dataclass(frozen=True, eq=False)
class Records:
    """Features of shape (records, weights), the last one constant 1, and a label for each record.

    Labels are the class numbers 0 to ``classes`` - 1, or any finite numbers where ``classes`` is 0.
    """

    features: FloatArray
    labels: FloatArray
    classes: int

    def __post_init__(self) -> None:
        features = matrix("features", self.features)
        labels = numeric("labels", self.labels)
        classes = whole_number("classes", self.classes, at_least=0, error=InvalidData)
        if classes == 1:
            raise InvalidData("classes must be 0 (labels are numbers) or at least 2; found 1")
        if labels.ndim != 1 or len(labels) != len(features):
            raise InvalidData(
                f"labels must be one number for each of {len(features)} records; "
                f"found an array of shape {labels.shape}"
            )
        _refuse(
            "features", features[:, -1], features[:, -1] != 1, "1, as the last feature is constant"
        )
        if classes:
            right = (labels >= 0) & (labels < classes) & (labels == np.floor(labels))
            _refuse("labels", labels, ~right, f"a class number from 0 to {classes - 1}")
        else:
            _refuse("labels", labels, ~np.isfinite(labels), "a finite number")
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "classes", classes)

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def norms(self) -> FloatArray:
        """The norm of each record's features."""
        return row_norms(self.features)

    @cached_property
    def blocks(self) -> tuple[Records, ...]:
        """The same records in parts that stay in a processor's cache while they are worked on."""
        rows = max(1, _block() // self.features.shape[1])
        cuts = [slice(start, start + rows) for start in range(0, len(self), rows)]
        if len(cuts) == 1:
            return (self,)
        return tuple(Records(self.features[c], self.labels[c], self.classes) for c in cuts)

    def take(self, rows: IntArray) -> Records:
        """Return the records at ``rows``, in that order."""
        return Records(self.features[rows], self.labels[rows], self.classes)


@dataclass(frozen=True, eq=False)
class Scaling:
    """Public numbers that turn raw columns into features: (raw - shift) / scale, and a constant 1.

    They belong to the task, for everybody to see, and never come from owners' records.
    """

    shift: FloatArray
    scale: FloatArray

    def __post_init__(self) -> None:
        shift, scale = numeric("shift", self.shift), numeric("scale", self.scale)
        if shift.ndim != 1 or shift.shape != scale.shape:
            raise InvalidData(
                "shift and scale must hold one number for each column; "
                f"found arrays of shape {shift.shape} and {scale.shape}"
            )
        _refuse("shift", shift, ~np.isfinite(shift), "a finite number")
        _refuse("scale", scale, ~((scale > 0) & np.isfinite(scale)), "a number above 0")
        object.__setattr__(self, "shift", shift)
        object.__setattr__(self, "scale", scale)

    @classmethod
    def from_public(cls, raw: FloatArray) -> Scaling:
        """Return the mean and standard deviation of public rows, the buyer's own.

        A column that is constant there, but for rounding, is shifted and not stretched.
        """
        raw = matrix("public rows", raw)
        with np.errstate(over="ignore", invalid="ignore"):
            shift, spread = raw.mean(axis=0), raw.std(axis=0)
        flat = spread <= 1e-12 * np.abs(shift)
        return cls(shift, np.where(flat, 1.0, spread))

    @property
    def digest(self) -> str:
        """The hash by which a task card pins these numbers."""
        return hashlib.sha256(self.shift.tobytes() + self.scale.tobytes()).hexdigest()

    @classmethod
    def none(cls, columns: int) -> Scaling:
        """Return the scaling that leaves each of ``columns`` columns as it is."""
        return cls(np.zeros(columns), np.ones(columns))

    def apply(self, raw: FloatArray) -> FloatArray:
        """Return the features: the scaled columns, then the constant 1."""
        raw = matrix("raw features", raw)
        if raw.shape[1] != len(self.shift):
            raise InvalidData(
                f"raw features must have {len(self.shift)} columns; found {raw.shape[1]}"
            )
        features = np.ones((len(raw), raw.shape[1] + 1))
        with np.errstate(over="ignore"):
            np.divide(raw - self.shift, self.scale, out=features[:, :-1])
        return features


def row_norms(rows: FloatArray) -> FloatArray:
    """Return the norm of each row; of each number, where there is one a row.

    Each row is scaled by its largest number first: squares of tiny numbers would vanish, and a
    gradient whose norm is taken for 0 would escape clipping.
    """
    sizes = np.abs(rows)
    if rows.ndim == 1:
        return sizes
    largest = sizes.max(axis=1)
    scaled = rows / np.where(largest > 0, largest, 1.0)[:, None]
    norms: FloatArray = largest * np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    return norms


def row_products(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """Return each row times a vector of weights, or times each row of a matrix of them.

    Each row is multiplied by itself. One product of whole matrices would round a row by where it
    stands and by how many there are, so that a record which comes or goes could change the
    gradients of others: what is charged for one record holds only where they stay as they are.
    """
    if weights.ndim == 1:
        products: FloatArray = np.vecdot(rows, weights)
        return products
    table: FloatArray = np.matmul(rows[:, None, :], weights.T)[:, 0, :]
    return table


def whole_products(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the same, but for rounding, on all cores: for rows that never come or go."""
    products: FloatArray = rows @ weights.T
    return products


def _block() -> int:
    return _BLOCK if cores() == 1 else _BLOCK_FOR_THREADS


def matrix(name: str, data: object) -> FloatArray:
    """Return ``data`` as finite float64 numbers in rows, at least one row and one column."""
    array = numeric(name, data)
    if array.ndim != 2:
        raise InvalidData(
            f"{name} must be a table of records by features; found an array of shape {array.shape}"
        )
    if not array.size:
        raise InvalidData(
            f"{name} must hold at least one record and one feature; found shape {array.shape}"
        )
    finite = np.isfinite(array)
    if not finite.all():
        row, column = np.unravel_index(int(np.argmin(finite)), array.shape)
        raise InvalidData(
            f"{name}[{row}, {column}] must be a finite number; found {array[row, column]}"
        )
    return array


def numeric(name: str, data: object) -> FloatArray:
    """Return ``data`` as a contiguous array of float64."""
    try:
        array = np.asarray(data)
    except ValueError:  # ragged lists
        raise InvalidData(f"{name} must be an array of numbers; found ragged lists") from None
    if array.dtype.kind not in "fiub":
        raise InvalidData(f"{name} must be an array of numbers; found the type {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.float64)
