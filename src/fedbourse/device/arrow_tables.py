"""Tables with a declared type for each column: Parquet and Arrow files, and Arrow in memory.

A schema is the choice of the owner's program, and no record. Yet programs derive schemas from
records: one missing cell turns whole numbers into doubles, one odd cell a column of numbers into
text. So whether a device takes part depends on names alone, never on a type; and each cell is read
for itself, a number in text as the number that it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbourse.device.cells import Reason
from fedbourse.device.table_files import TableFile, chosen_columns
from fedbourse.files.columns import arrow, explained

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.device.record_rule import Cells, RecordRule, RecordSpec, RecordTable


class ArrowFile(TableFile):
    """A .parquet file, or an .arrow file of either kind."""

    def check_schema(self, spec: RecordSpec) -> None:
        """Look at the schema alone."""
        with explained(self.path, self._kind):
            names, _ = self._open()
        chosen_columns(self.path, names, spec, self.label)

    def read(self, rule: RecordRule, spec: RecordSpec) -> RecordTable:
        """Read all records."""
        with explained(self.path, self._kind):
            _, read = self._open()
            table = read()
        return read_arrow(table, rule, spec, name=self.path, label=self.label)

    @property
    def _kind(self) -> str:
        return Path(self.path).suffix.lower()

    def _open(self) -> tuple[list[str], Callable[[], Any]]:
        """Return the names of the columns, and what reads them."""
        pa = arrow(self._kind)
        if self._kind == ".parquet":
            from pyarrow.parquet import ParquetFile

            file = ParquetFile(self.path)
            return file.schema_arrow.names, file.read
        try:
            reader = pa.ipc.open_file(pa.OSFile(self.path))
        except pa.ArrowInvalid:
            reader = pa.ipc.open_stream(pa.OSFile(self.path))
        return reader.schema.names, reader.read_all


def read_arrow(
    table: Any, rule: RecordRule, spec: RecordSpec, *, name: str, label: str | None = None
) -> RecordTable:
    """Read the card's columns of an Arrow table; ``name`` is the table's, for errors."""
    chosen = chosen_columns(name, table.column_names, spec, label)
    *features, labels = (_cells(table.column(i)) for i in chosen)
    return rule.read_columns(features, labels)


def _cells(column: Any) -> Cells:
    types = arrow("Arrow").types
    numeric = any(
        test(column.type) for test in (types.is_integer, types.is_floating, types.is_boolean)
    )
    if numeric and not column.null_count:
        cells: Cells = column.to_numpy()
        return cells
    try:
        return list(column.to_pylist())
    except Exception:  # one cell that Python cannot show must not hide the others
        return [_cell(cell) for cell in column]


def _cell(scalar: Any) -> object:
    try:
        return scalar.as_py()
    except Exception:  # text that is not UTF-8, or a moment that Python has no type for
        return Reason.UNREADABLE
