"""A privacy loss as people read it: an epsilon about one record, and one about the whole owner.

A budget is about neighbours that differ in one record. The same noise protects all m records of an
owner together too, at m^2 times the rho (group privacy). Every epsilon for people comes from here,
so that each one says what it is about.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from fedbourse.privacy.zcdp import DELTA, epsilon
from fedbourse.units import number, rounded_up, whole_number

NOTES = {
    "whole owner": "all of the owner's records together, at m^2 times the rho for m records; an "
    "epsilon far above 10 promises nothing",
    "percentages": "are of the cap's rho: rho adds up over tasks and epsilon does not, so they are "
    "not the ratio of two epsilons",
}
"""What goes with the two epsilons, and with every part of a cap."""
EPSILON_HEADS = ("epsilon\none record", "epsilon\nwhole owner")
"""The heads of two columns of a table."""
_DECIMALS_BELOW, _DIGITS_FROM = 100.0, 1e15


@dataclass(frozen=True)
class PrivacyLoss:
    """What updates may reveal, about one record and about the whole owner, in zCDP."""

    rho: float
    """About one record."""
    whole_owner_rho: float
    """About all of the owner's records together; infinite where it is beyond the doubles."""

    @classmethod
    def of(cls, rho: float, *, samples: int) -> PrivacyLoss:
        """Return the loss of one task, whose updates are means over ``samples`` records.

        >>> print(PrivacyLoss.of(0.1, samples=1000))
        epsilon 1.915 about one record, 102,146 about the whole owner
        """
        return cls.composed([(rho, samples)])

    @classmethod
    def composed(cls, tasks: Iterable[tuple[float | Fraction, int]]) -> PrivacyLoss:
        """Return the loss of several tasks, each a rho about one record and its m: both add up.

        >>> PrivacyLoss.composed([(0.5, 10), (0.25, 20)])
        PrivacyLoss(rho=0.75, whole_owner_rho=150.0)
        """
        one, whole = Fraction(0), Fraction(0)
        for rho, samples in tasks:
            exact = rho if isinstance(rho, Fraction) else Fraction(number("rho", rho, at_least=0))
            one += exact
            whole += exact * whole_number("samples", samples, at_least=1) ** 2
        return cls(rounded_up(one), rounded_up(whole))

    @cached_property
    def epsilon_one_record(self) -> float:
        """The proved epsilon about one record, at the delta that people are shown."""
        return _epsilon(self.rho)

    @cached_property
    def epsilon_whole_owner(self) -> float:
        """The proved epsilon about all records of the owner together, at the same delta."""
        return _epsilon(self.whole_owner_rho)

    @property
    def one_record_text(self) -> str:
        """The epsilon about one record, for people."""
        return epsilon_text(self.epsilon_one_record)

    @property
    def whole_owner_text(self) -> str:
        """The epsilon about the whole owner, for people."""
        return epsilon_text(self.epsilon_whole_owner)

    def document(self, prefix: str = "") -> dict[str, float | None]:
        """Return both epsilons by their names in JSON, which knows no infinity: None stands in."""
        both = {"one_record": self.epsilon_one_record, "whole_owner": self.epsilon_whole_owner}
        return {
            f"{prefix}epsilon_{name}": value if math.isfinite(value) else None
            for name, value in both.items()
        }

    def __str__(self) -> str:
        return losses_text(self.document())


def losses_text(document: Mapping[str, float | None], prefix: str = "") -> str:
    """Return both epsilons of a document in words; ``prefix`` is that of their names."""
    one_record = epsilon_text(document[f"{prefix}epsilon_one_record"])
    whole_owner = epsilon_text(document[f"{prefix}epsilon_whole_owner"])
    return f"epsilon {one_record} about one record, {whole_owner} about the whole owner"


def epsilon_text(value: float | None) -> str:
    """Return an epsilon for people, rounded up: it is a promise.

    >>> epsilon_text(1.88142), epsilon_text(0.0), epsilon_text(96961.3), epsilon_text(1.23456e18)
    ('1.882', '0', '96,962', '1.235e+18')
    """
    if value is None or value == math.inf:
        return "without bound"
    if value == 0:
        return "0"
    if value < _DECIMALS_BELOW:
        return f"{math.ceil(value * 1000) / 1000:.3f}"
    if value < _DIGITS_FROM:
        return f"{math.ceil(value):,}"
    step = 10 ** (math.floor(math.log10(value)) - 3)
    return f"{float(-(-Fraction(value) // step) * step):.4g}"


@lru_cache(maxsize=4096)  # each takes milliseconds, and many owners sell the same
def _epsilon(rho: float) -> float:
    if rho in (0, math.inf):
        return rho
    return epsilon(rho=rho, delta=DELTA)
