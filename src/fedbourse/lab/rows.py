"""What the lab measured."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fedbourse.errors import BrokenPromise
from fedbourse.lab.published import PUBLISHED

if TYPE_CHECKING:
    from fedbourse.lab.buyers import LabBuyer
    from fedbourse.study.trials import Mean


@dataclass(frozen=True, kw_only=True)
class LabRow:
    """One mechanism for one profile and buyer: means over draws."""

    mechanism: str
    profile: str
    buyer: str
    reward: float | None
    """R, given or best for this buyer; None for a mechanism that promises no limit."""
    lot: float
    budget: float
    """P, the total budget bought."""
    first_best: float
    """P in terms of what the same spend buys at known values."""
    spend: float
    sellers: float
    buyer_utility: float
    """G Q/(1+Q) less the spend."""
    buyer_utility_error: float
    """Its standard error over draws."""
    owners_utility: float
    """Of all owners together."""
    quality: float
    """Q/(1+Q), between 0 and 1: what the budgets bring of perfect training."""
    misreport_gain: float | None
    """The most that one owner gained by acting as if its value were another one; None where none
    was tried."""
    names_gain: float | None
    """The most that one owner gained under several names."""
    accuracy: Mean | None
    """Of real trainings."""
    broken: tuple[str, ...]
    """Promises and bounds that this row breaks, as sentences."""


@dataclass(frozen=True, kw_only=True)
class LabRecord:
    """All rows, with what it takes to get them again."""

    rows: tuple[LabRow, ...]
    buyers: tuple[LabBuyer, ...]
    owners: int
    draws: int
    deviation_draws: int
    """On how many draws deviations were searched for."""
    seed: int

    @property
    def broken(self) -> list[str]:
        """Every broken promise or bound, in one sentence each."""
        return [
            f"{row.mechanism} on {row.profile} for {row.buyer}: {sentence}"
            for row in self.rows
            for sentence in row.broken
        ]

    def check(self) -> None:
        """Raise an error if a row breaks a promise of its mechanism, or a proven bound."""
        if self.broken:
            more = f" (and {len(self.broken) - 1} more)" if len(self.broken) > 1 else ""
            raise BrokenPromise(self.broken[0] + more)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain dictionaries, lists and numbers."""
        return {
            "owners": self.owners,
            "draws": self.draws,
            "deviation_draws": self.deviation_draws,
            "seed": self.seed,
            "buyers": [asdict(buyer) | {"name": buyer.name} for buyer in self.buyers],
            "rows": [row_document(row) for row in self.rows],
        }

    def row(self, mechanism: str, profile: str, buyer: int = 0) -> LabRow:
        """Return the row of a mechanism and a profile, for one of the buyers."""
        name = self.buyers[buyer].name
        for row in self.rows:
            if (row.mechanism, row.profile, row.buyer) == (mechanism, profile, name):
                return row
        raise KeyError((mechanism, profile, name))


def row_document(row: LabRow) -> dict[str, Any]:
    """Return a row as one flat record."""
    document = asdict(row) | {
        "accuracy": None if row.accuracy is None else row.accuracy.value,
        "accuracy_margin": None if row.accuracy is None else row.accuracy.margin,
        "broken": list(row.broken),
        "published": PUBLISHED.get(row.mechanism, ""),
    }
    return {
        name: None if isinstance(value, float) and math.isinf(value) else value
        for name, value in document.items()
    }
