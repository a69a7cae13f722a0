"""Records by name: flights, MNIST, scikit-learn's classics, simulated data, or a file."""

from __future__ import annotations

from pathlib import Path

from fedbourse.errors import InvalidData
from fedbourse.files.column_file import split_spec
from fedbourse.learning.sources import Source, files, flights, mnist, scikit, synthetic
from fedbourse.units import whole_number

__all__ = ["KNOWN", "Source", "load"]

KNOWN = (
    "flights",
    "flights:aircraft",
    "mnist[:FOLDER]",
    "sklearn:digits",
    "sklearn:breast_cancer",
    "synthetic[:KEY=NUMBER,...]",
    "FILE[:LABEL_COLUMN] with FILE .csv, .parquet or .npz",
)


def load(name: str, *, seed: int = 0, buyer_records: int | None = None) -> Source:
    """Return the records that ``name`` stands for; the seed chooses which are the buyer's own."""
    seed = whole_number("seed", seed, at_least=0)
    kind, _, rest = name.partition(":")
    if name in ("flights", "flights:aircraft"):
        return flights.load(by_aircraft=bool(rest), seed=seed, buyer_records=buyer_records)
    if kind == "mnist":
        return mnist.load(rest, seed=seed, buyer_records=buyer_records)
    if kind == "sklearn":
        return scikit.load(rest, seed=seed, buyer_records=buyer_records)
    if kind == "synthetic":
        return synthetic.load(rest, seed=seed, buyer_records=buyer_records)
    path, label = split_spec(name)
    if Path(path).suffix.lower() in files.KINDS:
        return files.load(path, label, seed=seed, buyer_records=buyer_records)
    raise InvalidData(f"data must be one of {'; '.join(KNOWN)}; found {name!r:.60}")
