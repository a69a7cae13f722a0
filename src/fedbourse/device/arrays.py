"""Tables held in memory as arrays or lists, and .npz files of arrays."""

from __future__ import annotations

import zipfile
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.device.cells import Reason
from fedbourse.device.record_rule import Misfit, RawRecord
from fedbourse.device.table_files import TableFile, system_errors
from fedbourse.errors import InvalidData, InvalidFile
from fedbourse.learning.sources.files import array_names, explained_arrays

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import IO

    import numpy.typing as npt

    from fedbourse.device.record_rule import RecordRule, RecordSpec, RecordTable


def read_pair(features: Any, labels: Any, rule: RecordRule) -> RecordTable:
    """Read a table of features and a column of labels, each an array or a sequence.

    The shape of an array is its schema; how many rows it has is not.
    """
    if not hasattr(features, "__array__"):
        labels = np.asarray(labels).tolist() if hasattr(labels, "__array__") else labels
        return read_pairs(zip_longest(features, labels), rule)
    table: npt.NDArray[Any] = np.asarray(features)
    if table.ndim != 2 or not rule.allows(table.shape[1]):
        raise InvalidData(
            f"an array of features must have {rule.width} columns; found the shape {table.shape}"
        )
    column = np.asarray(labels) if hasattr(labels, "__array__") else list(labels)
    if isinstance(column, np.ndarray) and column.ndim != 1:
        raise InvalidData(f"labels must be one column; found an array of shape {column.shape}")
    size = min(len(column), len(table))  # features without a label are no record
    return rule.read_columns(list(table[:size].T), column[:size])


def read_pairs(pairs: Iterable[object], rule: RecordRule) -> RecordTable:
    """Read records that come one by one, as pairs of features and a label."""
    return rule.read_rows(_numbered(pairs))


def _numbered(pairs: Iterable[object]) -> Iterator[tuple[int, RawRecord | Misfit]]:
    """Yield each pair with its place; one that cannot be had is a record that does not fit.

    A generator ends where it raises, and what it would have yielded then is lost: a source must
    not raise because of a record.
    """
    iterator, row = iter(pairs), 0
    while True:
        row += 1
        try:
            pair = next(iterator)
        except StopIteration:
            return
        except Exception as error:  # whatever an application's own code raises
            yield row, Misfit(Reason.UNREADABLE, None, type(error).__name__)
        else:
            yield row, _raw(pair)


def _raw(pair: object) -> RawRecord | Misfit:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        return Misfit(Reason.UNREADABLE, None, "no pair of features and a label")
    features, label = pair
    if isinstance(features, str | bytes | dict):
        return Misfit(Reason.UNREADABLE, None, f"features in a {type(features).__name__}")
    try:
        cells = list(features.tolist() if isinstance(features, np.ndarray) else features)
    except Exception as error:  # no sequence, or one that fails
        return Misfit(Reason.UNREADABLE, None, type(error).__name__)
    return RawRecord(cells, label)


class NpzFile(TableFile):
    """A .npz file with the arrays X and y, or features and labels; columns in the card's order."""

    def check_schema(self, spec: RecordSpec) -> None:
        """Look at the shapes that the file declares, but for the number of records."""
        if self.label is not None:
            raise InvalidFile(f"{self.path} has no named columns, so :{self.label} must go")
        with self._explained(), zipfile.ZipFile(self.path) as archive:
            names = array_names(
                self.path, {each.removesuffix(".npy") for each in archive.namelist()}
            )
            shapes = []
            for name in names:
                with archive.open(f"{name}.npy") as file:
                    shapes.append(_declared_shape(file))
        features, labels = shapes
        widths = (spec.features - 1,) if spec.layout else (spec.features - 1, spec.features)
        if len(features) != 2 or features[1] not in widths or len(labels) != 1:
            raise InvalidFile(
                f"{self.path} must hold a table of {spec.features - 1} columns and a column of "
                f"labels; found arrays of shape {features} and {labels}"
            )

    def read(self, rule: RecordRule, spec: RecordSpec) -> RecordTable:
        """Read both arrays."""
        self.check_schema(spec)
        with self._explained(), np.load(self.path, allow_pickle=False) as arrays:
            features, labels = (
                np.asarray(arrays[name]) for name in array_names(self.path, set(arrays.files))
            )
        return read_pair(features, labels, rule)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        with explained_arrays(self.path), system_errors(self.path):
            yield


def _declared_shape(file: IO[bytes]) -> tuple[int, ...]:
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise InvalidFile("an array of named fields is not a table")
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise InvalidFile("arrays of Python objects are not read")
    return shape
