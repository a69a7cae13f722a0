"""An equilibrium with its certificate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from fedbourse.errors import InvalidGame, InvalidInput, NoEquilibrium
from fedbourse.game.certificate import largest_linear_regret, tolerance
from fedbourse.game.columns import FloatArray, IntArray, positive
from fedbourse.game.cutoff import CutoffRecord
from fedbourse.game.game import checked_reward
from fedbourse.game.participants import OwnerTable, ParticipantSet, source_and_row
from fedbourse.game.presentation import Chart, Library, Line, Presentable, frame

_LISTED_UNASKED = 1000
"""Participants that a notebook may list without being asked."""
_SMALLEST = 1e-290  # below, doubles have fewer digits than a certificate needs


@dataclass(frozen=True)
class Profile:
    """Each participant's budget, pay and utility."""

    participants: IntArray
    budgets: FloatArray
    payments: FloatArray
    utilities: FloatArray
    regret: float = 0.0
    """The largest gain from deviating, unless another function certifies it."""
    who: list[Any] | None = None
    """What they are called; None where that is their positions."""
    values: FloatArray | None = None
    """Their values; None where pay is for information, and values count per unit of it."""

    def __post_init__(self) -> None:
        for array in (self.participants, self.budgets, self.payments, self.utilities):
            array.flags.writeable = False


@dataclass(frozen=True, eq=False, repr=False)
class Equilibrium(Presentable):
    """Budgets that no owner gains by changing while the others keep theirs, with the certificate.

    ``participants`` are positions in the values, rising; ``budgets``, ``payments`` and
    ``utilities`` stand in the same order. The arrays are computed at first use, and cannot be
    written to; an array of values in memory must stay as it is until then.
    """

    owners: int
    """n, all owners, taking part or not."""
    count: int
    """K, how many take part."""
    reward: float
    total_budget: float
    """P, the sum of all budgets."""
    cutoff: float | None
    """Linear cost without entry costs: an owner takes part exactly when its value lies below this.
    Where pay is for information, values are meant per unit of it: v / m^2."""
    method: str
    cheapest: float | None
    """The smallest value of all, where budgets follow from values alone."""
    _solve: Profile | Callable[[], Profile] = field(repr=False)
    _budgets_of: Callable[[FloatArray], FloatArray] | None = field(repr=False, default=None)
    _certify: Callable[[], float] | None = field(repr=False, default=None)
    _values: Callable[[], Iterable[FloatArray]] | None = field(repr=False, default=None)
    _at: Callable[[float], Equilibrium] | None = field(repr=False, default=None)

    @cached_property
    def _profile(self) -> Profile:
        return self._solve if isinstance(self._solve, Profile) else self._solve()

    @cached_property
    def regret(self) -> float:
        """The largest gain that any owner has from deviating, as ``certify`` finds it."""
        return self._profile.regret if self._certify is None else self._certify()

    def profile(self) -> Profile:
        """List those who take part; raise ``InvalidGame`` where they are too many."""
        return self._profile

    def certify(self) -> float:
        """Find the largest gain that any owner, taking part or not, has from deviating.

        Raise ``NoEquilibrium`` where it is above the tolerance.
        """
        return self.regret

    @property
    def participants(self) -> IntArray:
        """Return the positions of those who take part."""
        return self._profile.participants

    @property
    def who(self) -> list[Any]:
        """Return the participants by name; by source and row; or by position."""
        names = self._profile.who
        return self.participants.tolist() if names is None else list(names)

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

    def to_frame(
        self,
        library: Library | None = None,
        *,
        owners: Literal["participants", "all"] = "participants",
    ) -> Any:
        """Return those who take part as a frame: index, name, value, budget, payment and utility.

        ``owners="all"`` has a row for each owner, in the order of the values; outsiders have zeros,
        and no value, which is not held. The library is pandas or Polars: whichever is installed.
        """
        if owners not in ("participants", "all"):
            raise InvalidInput(f"owners must be 'participants' or 'all'; found {owners!r:.60}")
        return frame(self._rows() if owners == "participants" else self._all_rows(), library)

    def _facts(self) -> dict[str, object]:
        return {**self._held_facts(), "regret": self.regret}

    def _short_facts(self) -> dict[str, object]:
        """Return what is told without listing owners or reading a stream again."""
        return {name: fact for name, fact in self._held_facts().items() if fact is not None}

    def _held_facts(self) -> dict[str, object]:
        return {
            "owners": self.owners,
            "participants": self.count,
            "reward": self.reward,
            "total_budget": self.total_budget,
            "cutoff": self.cutoff,
            "method": self.method,
        }

    def _rows(self) -> dict[str, Any]:
        profile = self._profile
        rows: dict[str, Any] = {"index": profile.participants, **_named(profile.who)}
        if profile.values is not None:
            rows["value"] = profile.values
        return rows | {
            "budget": profile.budgets,
            "payment": profile.payments,
            "utility": profile.utilities,
        }

    def _all_rows(self) -> dict[str, Any]:
        profile = self._profile
        rows: dict[str, Any] = {"index": np.arange(self.owners), "budget": self.dense()}
        for name, amounts in (("payment", profile.payments), ("utility", profile.utilities)):
            rows[name] = np.zeros(self.owners)
            rows[name][profile.participants] = amounts
        return rows

    def _first_rows(self) -> str:
        if self.count > _LISTED_UNASKED:
            return ""
        try:
            return super()._first_rows()
        except InvalidGame:  # they cannot be listed
            return ""

    def _chart(self) -> Chart:
        profile = self._profile
        by_value = profile.values is not None
        x = profile.values if profile.values is not None else -profile.budgets
        order = np.argsort(x, kind="stable")
        places = x[order] if by_value else np.arange(1.0, len(order) + 1)
        return Chart(
            title=f"{self.count} of {self.owners} owners share a reward of {self.reward:g}",
            x_label="value" if by_value else "owner, by budget",
            y_label="budget (rho)",
            lines=(Line("budget", places, profile.budgets[order]),),
            kind="points",
        )


def _named(who: list[Any] | None) -> dict[str, list[Any]]:
    """Return what owners are called: by file and row, or by name."""
    if who is None:
        return {}
    if who and all(isinstance(each, tuple) for each in who):
        return {"file": [each[0] for each in who], "row": [each[1] for each in who]}
    return {"name": who}


def empty_equilibrium(owners: int) -> Equilibrium:
    """Return the equilibrium of a reward of 0: nobody takes part."""
    nothing = np.zeros(0)
    profile = Profile(np.zeros(0, np.int64), nothing, nothing, nothing)
    return Equilibrium(owners, 0, 0.0, 0.0, None, "no reward", None, profile, np.zeros_like)


def linear_equilibrium(
    participants: ParticipantSet,
    reward: float,
    *,
    units: FloatArray | None = None,
    certify: Callable[[float, Callable[[FloatArray], FloatArray]], float] | None = None,
) -> Equilibrium:
    """Return the linear cost's equilibrium, given who takes part.

    Where one unit of an owner's budget counts as ``units``, values are meant as v / units.
    ``certify`` finds the regret where the participants are too many to be listed.
    """
    amount = checked_reward(reward)
    cutoff = participants.cutoff
    total = amount / cutoff.tau
    if not (_SMALLEST < cutoff.tau < np.inf and _SMALLEST < total < np.inf):
        raise InvalidGame(
            f"the total budget, reward {amount:g} / cutoff {cutoff.tau:g}, lies beyond what a "
            "float can hold; measure values or reward in other units"
        )
    if not cutoff.margin / cutoff.total * amount > 0:  # the highest-value participant's pay
        raise InvalidGame(
            f"an owner's pay lies below what a float can hold: values from "
            f"{cutoff.cheapest:g} to {cutoff.highest:g} are too far apart"
        )
    solve = partial(_linear_profile, participants, amount, total, units)
    budgets_of = partial(_linear_budgets, cutoff, total)
    return Equilibrium(
        owners=participants.owners,
        count=cutoff.count,
        reward=amount,
        total_budget=total if units is None else float(solve().budgets.sum()),
        cutoff=cutoff.tau,
        method="linear, exact: Algorithm 2 without a sort",
        cheapest=cutoff.cheapest if units is None else None,
        _solve=solve,
        _budgets_of=budgets_of if units is None else None,
        _certify=None if certify is None else partial(certify, amount, budgets_of),
        _values=participants.values if units is None else None,
        _at=partial(linear_equilibrium, participants, units=units, certify=certify),
    )


def _linear_budgets(cutoff: CutoffRecord, total: float, values: FloatArray) -> FloatArray:
    shares = _linear_shares(cutoff, np.minimum(values, cutoff.highest))
    return np.where(values <= cutoff.top, total * shares, 0.0)


def _linear_shares(cutoff: CutoffRecord, values: FloatArray) -> FloatArray:
    """Return s = (D + (K-1)(v_K - v)) / sum of v, in which nothing cancels, of participants."""
    shares = cutoff.highest - values
    shares *= cutoff.count - 1
    shares += cutoff.margin
    shares /= cutoff.total
    return shares


def _linear_profile(
    participants: ParticipantSet, reward: float, total: float, units: FloatArray | None
) -> Profile:
    table = participants.table()
    positions, who = labels(table, participants.sources)
    shares = _linear_shares(participants.cutoff, table.values)
    budgets = total * shares
    # The cheapest outsider would gain most by entering.
    root = math.sqrt(reward) - math.sqrt(participants.cheapest_outsider) * math.sqrt(total)
    worst = max(largest_linear_regret(table.values, budgets, reward), max(0.0, root) ** 2)
    check_regret(worst, reward, participants.cutoff.count)
    return Profile(
        participants=positions,
        budgets=budgets if units is None else budgets / units[positions],
        payments=reward * shares,
        utilities=reward * shares**2,
        regret=worst,
        who=who,
        values=table.values if units is None else None,
    )


def labels(table: OwnerTable, sources: dict[str, int]) -> tuple[IntArray, list[Any] | None]:
    """Return positions in the order of reading, and names, or sources and rows, if there are."""
    names = None if table.names is None else table.names.tolist()
    if len(sources) <= 1:
        return table.places, names
    numbers, rows = source_and_row(table.places)
    positions = rows + np.cumsum([0, *sources.values()])[numbers]
    if names is None:
        titles = list(sources)
        names = [(titles[n], row) for n, row in zip(numbers.tolist(), rows.tolist(), strict=True)]
    return positions, names


def check_regret(regret: float, reward: float, participants: int) -> None:
    """Let no profile pass without its certificate."""
    if not regret <= tolerance(reward, participants):
        raise NoEquilibrium(
            f"this profile is not an equilibrium: an owner would gain {regret:.3g} by deviating, "
            f"more than {tolerance(reward, participants):.3g}; is the cost convex throughout?"
        )
