"""The classics that scikit-learn carries: handwritten digits, and breast tumours."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbourse.errors import InvalidData, MissingExtra
from fedbourse.learning.records import Scaling
from fedbourse.learning.sources import Source, from_table, split

NAMES = ("digits", "breast_cancer")


def load(which: str, *, seed: int, buyer_records: int | None) -> Source:
    """Return digits or breast_cancer."""
    name = f"sklearn:{which}"
    if which not in NAMES:
        choices = " or ".join(f"sklearn:{n}" for n in NAMES)
        raise InvalidData(f"scikit-learn's data must be {choices}; found {name!r:.60}")
    try:
        from sklearn import datasets
    except ImportError:
        raise MissingExtra(
            f"{name} needs scikit-learn, which is not installed: pip install 'fedbourse[data]'"
        ) from None
    bunch: Any = datasets.load_digits() if which == "digits" else datasets.load_breast_cancer()
    raw = np.asarray(bunch.data, dtype=np.float64)
    digits = which == "digits"
    return from_table(
        name,
        raw,
        np.asarray(bunch.target, dtype=np.float64),
        classes=len(bunch.target_names),
        columns=tuple(str(column).replace(" ", "_") for column in bunch.feature_names),
        description=(
            "A record is a handwritten digit of 8 by 8 pixels; predicted is which digit it is."
            if digits
            else "A record is a breast tumour, measured under the microscope; "
            "predicted is whether it is benign."
        ),
        default_samples=50 if digits else 20,
        rows=split(
            name, rows=len(raw), buyer_records=buyer_records, usual=len(raw) // 5, seed=seed
        ),
        # A pixel is a count from 0 to 16 by the makers' definition: no row tells us that.
        scaling=Scaling(np.zeros(64), np.full(64, 16.0)) if digits else None,
    )
