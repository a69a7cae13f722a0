"""An equilibrium, as whoever asked for it sees it, with its certificate."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.errors import InvalidGame, NoEquilibrium
from fedbourse.game.certificate import largest_linear_regret, tolerance
from fedbourse.game.columns import FloatArray, IntArray, positive
from fedbourse.game.participants import Kept, Participants, row_of, source_of
from fedbourse.game.rules import checked_reward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy.typing as npt

    from fedbourse.game.threshold import Threshold

_SMALLEST = 1e-290  # below, doubles have fewer digits than a certificate needs


@dataclass(frozen=True)
class Profile:
    """Those who take part, one by one."""

    participants: IntArray
    budgets: FloatArray
    payments: FloatArray
    utilities: FloatArray
    regret: float = 0.0
    """The largest gain from deviating, where it was found along with them."""
    who: list[Any] | None = None
    """What they are called; None where that is their positions."""

    def __post_init__(self) -> None:
        """Let nobody write into what others may hold."""
        for array in (self.participants, self.budgets, self.payments, self.utilities):
            array.flags.writeable = False


@dataclass(frozen=True, eq=False)
class Equilibrium:
    """Budgets that no owner gains by changing while the others keep theirs, with the certificate.

    ``participants`` are positions in the values given, rising; ``budgets``, ``payments`` and
    ``utilities`` stand in the same order. The arrays are computed when first asked for, and cannot
    be written to; an array of values in memory must stay as it is until then.
    """

    owners: int
    """n, all owners, taking part or not."""
    count: int
    """K, how many take part."""
    reward: float
    total_budget: float
    """P, the sum of all budgets."""
    threshold: float | None
    """Linear cost without entry costs: an owner takes part exactly when its value lies below this.
    Where pay is for information, values are meant per unit of it: v / m^2."""
    method: str
    cheapest: float | None
    """The least value of all, where budgets follow from values alone."""
    _solve: Callable[[], Profile] = field(repr=False)
    _budgets_of: Callable[[FloatArray], FloatArray] | None = field(repr=False, default=None)
    _certify: Callable[[], float] | None = field(repr=False, default=None)
    _values: Callable[[], Iterable[FloatArray]] | None = field(repr=False, default=None)
    _at: Callable[[float], Equilibrium] | None = field(repr=False, default=None)

    @cached_property
    def _profile(self) -> Profile:
        return self._solve()

    @cached_property
    def _certified(self) -> float:
        return self._profile.regret if self._certify is None else self._certify()

    @property
    def participants(self) -> IntArray:
        """Return the positions of those who take part."""
        return self._profile.participants

    @property
    def who(self) -> list[Any]:
        """Return what those who take part are called: by name; by source and row; by position."""
        named = self._profile.who
        return self.participants.tolist() if named is None else list(named)

    @property
    def budgets(self) -> FloatArray:
        """Return each participant's budget r, in zCDP."""
        return self._profile.budgets

    @property
    def payments(self) -> FloatArray:
        """Return each participant's pay; they sum to the reward unless nobody takes part."""
        return self._profile.payments

    @property
    def utilities(self) -> FloatArray:
        """Return each participant's pay less its costs."""
        return self._profile.utilities

    @property
    def regret(self) -> float:
        """Return the largest gain that any owner, taking part or not, has from deviating."""
        return self._certified

    def budgets_of(self, values: object) -> FloatArray:
        """Return the budgets of owners with these values in this equilibrium, 0 for outsiders.

        So a game of more owners than memory holds is read out chunk by chunk. Not for games with
        caps, entry costs or pay for information, where a value alone does not tell.
        """
        if self._budgets_of is None:
            raise InvalidGame(
                "budgets_of(values) is for games without caps, entry costs and pay for information"
            )
        return self._budgets_of(positive("values", values))

    def values(self) -> Iterable[FloatArray]:
        """Return the values of all who take part, and maybe of others, block by block."""
        if self._values is None:
            raise InvalidGame("this equilibrium does not hold its owners' values")
        return self._values()

    def at(self, reward: float) -> Equilibrium | None:
        """Return the equilibrium of the same owners at another reward, if no new look is needed."""
        return None if self._at is None else self._at(reward)

    def dense(self) -> FloatArray:
        """Return the budgets of all owners as one array, 0 for those who do not take part."""
        if len(self.participants) and self.participants[-1] >= self.owners:
            raise InvalidGame(
                f"dense() needs owners at positions 0 to {self.owners - 1}; "
                f"found position {self.participants[-1]}"
            )
        result = np.zeros(self.owners)
        result[self.participants] = self.budgets
        return result


def nobody(owners: int) -> Equilibrium:
    """Return the equilibrium of a reward of 0: everybody stays silent."""
    nothing = np.zeros(0)
    profile = Profile(np.zeros(0, np.int64), nothing, nothing, nothing, 0.0)
    return Equilibrium(
        owners, 0, 0.0, 0.0, None, "no reward", None, partial(given, profile), np.zeros_like
    )


def linear_equilibrium(
    found: Participants,
    *,
    reward: float,
    units: FloatArray | None = None,
    certify: Callable[[float, Callable[[FloatArray], FloatArray]], float] | None = None,
) -> Equilibrium:
    """Return the linear cost's equilibrium, given who takes part.

    Where one unit of an owner's budget counts as ``units``, values are meant as v / units.
    ``certify`` finds the regret where the participants are too many to be listed.
    """
    amount = checked_reward(reward)
    limit = found.threshold
    total = amount / limit.tau
    if not (_SMALLEST < limit.tau < np.inf and _SMALLEST < total < np.inf):
        raise InvalidGame(
            f"the total budget, reward {amount:g} / threshold {limit.tau:g}, lies beyond what a "
            "float can hold; measure values or reward in other units"
        )
    smallest = limit.margin / limit.total  # the dearest participant's share
    if not smallest * amount > 0:
        raise InvalidGame(
            f"an owner's pay lies below what a float can hold: values from "
            f"{limit.cheapest:g} to {limit.dearest:g} are too far apart"
        )
    solve = partial(_linear_profile, found, amount, total, units)
    budgets_of = partial(_linear_budgets, limit, total)
    return Equilibrium(
        owners=found.owners,
        count=limit.count,
        reward=amount,
        total_budget=total if units is None else float(solve().budgets.sum()),
        threshold=limit.tau,
        method="linear, exact: Algorithm 2 without a sort",
        cheapest=limit.cheapest if units is None else None,
        _solve=solve,
        _budgets_of=budgets_of if units is None else None,
        _certify=None if certify is None else partial(certify, amount, budgets_of),
        _values=found.values if units is None else None,
        _at=partial(_linear_at, found, units, certify),
    )


def _linear_at(
    found: Participants,
    units: FloatArray | None,
    certify: Callable[[float, Callable[[FloatArray], FloatArray]], float] | None,
    reward: float,
) -> Equilibrium:
    return linear_equilibrium(found, reward=reward, units=units, certify=certify)


def _linear_budgets(limit: Threshold, total: float, values: FloatArray) -> FloatArray:
    shares = linear_shares(limit, np.minimum(values, limit.dearest))
    return np.where(values <= limit.top, total * shares, 0.0)


def linear_shares(limit: Threshold, values: FloatArray) -> FloatArray:
    """Return s = (D + (K-1)(v_K - v)) / sum of v, in which nothing cancels, of participants."""
    shares = limit.dearest - values
    shares *= limit.count - 1
    shares += limit.margin
    shares /= limit.total
    return shares


def _linear_profile(
    found: Participants, reward: float, total: float, units: FloatArray | None
) -> Profile:
    kept = found.kept()
    positions, who = labels(kept, found.sources)
    shares = linear_shares(found.threshold, kept.values)
    budgets = total * shares
    worst = max(
        largest_linear_regret(kept.values, budgets, reward),
        outsiders_regret(found.cheapest_outsider, total, reward),
    )
    check(worst, reward, found.threshold.count)
    return Profile(
        participants=positions,
        budgets=budgets if units is None else budgets / units[positions],
        payments=reward * shares,
        utilities=reward * shares**2,
        regret=worst,
        who=who,
    )


def outsiders_regret(cheapest: float, total: float, reward: float) -> float:
    """Return what the cheapest outsider, who would gain most by entering, would gain if at all."""
    return max(0.0, math.sqrt(reward) - math.sqrt(cheapest) * math.sqrt(total)) ** 2


def labels(kept: Kept, sources: dict[str, int]) -> tuple[IntArray, list[Any] | None]:
    """Return positions in the order of reading, and what else the owners are known by."""
    rows, numbers = row_of(kept.places), source_of(kept.places)
    names: npt.NDArray[Any] | None = kept.names
    if len(sources) <= 1:
        return kept.places, None if names is None else names.tolist()
    starts = np.cumsum([0, *sources.values()])
    if names is not None:
        return rows + starts[numbers], names.tolist()
    called = list(sources)
    where = zip(numbers.tolist(), rows.tolist(), strict=True)
    return rows + starts[numbers], [(called[number], row) for number, row in where]


def given(profile: Profile) -> Profile:
    """Return a profile that was found already."""
    return profile


def check(regret: float, reward: float, participants: int) -> None:
    """Let no profile pass without its certificate."""
    if not regret <= tolerance(reward, participants):
        raise NoEquilibrium(
            f"the profile found is no equilibrium: an owner would gain {regret:.3g} by deviating, "
            f"more than {tolerance(reward, participants):.3g}; is the cost convex throughout?"
        )
