"""Where records come from: one file for each kind of source, and what they have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbourse.errors import InvalidData
from fedbourse.game.columns import FloatArray, IntArray
from fedbourse.learning.records import Pool, Records, Scaling
from fedbourse.units import whole_number


@dataclass(frozen=True, eq=False)
class Source:
    """Records for a task: the pool is for owners, the buyer's own rows are public; none is in both.

    ``groups`` holds the natural group of each record of the pool, below 0 for none.
    ``best_accuracy`` is what no model can exceed, where the truth is known.
    """

    name: str
    pool: Pool
    buyer: Records
    groups: IntArray | None
    scaling: Scaling
    description: str
    feature_names: tuple[str, ...]
    default_samples: int
    default_model: str
    best_accuracy: float | None = None
    label: str = "label"
    """The column that holds what is to be predicted."""
    class_names: tuple[str, ...] = ()
    """What labels of each class look like, where they are not the class numbers themselves."""

    def __post_init__(self) -> None:
        assert len(self.feature_names) == self.buyer.features.shape[1]
        for whose, records in (("owners'", self.pool), ("buyer's", self.buyer)):
            if records.classes and (records.labels == records.labels[0]).all():
                raise InvalidData(
                    f"{self.name}: the {whose} {len(records)} records are all of class "
                    f"{records.labels[0]:g}; choose another seed or buyer_records"
                )


@dataclass(frozen=True, eq=False)
class Split:
    """Which rows are the buyer's and which the pool's."""

    buyer: IntArray
    pool: IntArray


def split(name: str, *, rows: int, buyer_records: int | None, usual: int, seed: int) -> Split:
    """Choose the buyer's rows at random; all others, in their old order, are the pool's."""
    size = usual if buyer_records is None else buyer_records
    size = whole_number("buyer_records", size, at_least=2)
    if size >= rows:
        raise InvalidData(
            f"{name} has {rows} records, and {size} of them for the buyer leave none for owners; "
            f"buyer_records must be of at most {rows - 1}"
        )
    order = np.random.default_rng([seed, 2]).permutation(rows)
    return Split(buyer=np.sort(order[:size]), pool=np.sort(order[size:]))


def from_table(
    name: str,
    raw: FloatArray,
    labels: FloatArray,
    *,
    classes: int,
    columns: tuple[str, ...],
    description: str,
    default_samples: int,
    rows: Split,
    scaling: Scaling | None = None,
    label: str = "label",
    class_names: tuple[str, ...] = (),
) -> Source:
    """Return the source of a table held in memory, scaled by the buyer's rows if not otherwise."""
    scaling = scaling or Scaling.from_public(raw[rows.buyer])
    records = Records(scaling.apply(raw), labels, classes)
    return Source(
        name=name,
        pool=records.take(rows.pool),
        buyer=records.take(rows.buyer),
        groups=None,
        scaling=scaling,
        description=description,
        feature_names=(*columns, "constant"),
        default_samples=default_samples,
        default_model={0: "least-squares", 2: "logistic"}.get(classes, "softmax"),
        label=label,
        class_names=class_names,
    )
