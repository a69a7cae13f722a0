"""What a buyer tries: names of its own, the moment of settlement, the card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbourse.study.deviations.cases import Case, cost_of
from fedbourse.study.deviations.owner_cases import HONEST, equal_owners
from fedbourse.study.deviations.play import Scenario, TradeSetting
from fedbourse.study.deviations.search import Axis, Point
from fedbourse.study.deviations.strategies import Actor, Ending, Honest, Latecomer

if TYPE_CHECKING:
    from collections.abc import Callable

REWARD = 10.0
HONEST_TOTAL = 8.75
"""What eight owners of value 1 sell for R = 10: tau is 8/7."""
_SHILL_ENDINGS: tuple[Ending, ...] = ("declines", "does not sign", "leaves")
BIDS = (
    Axis("reward", REWARD, 50 * REWARD, log=True),
    Axis("puppet acts as", 1e-4, 1.0, log=True),
)


def buyer_cases() -> list[Case]:
    """Return the rows of the buyer."""
    return [
        among_eight(
            "shill",
            "a name of its own bids at a larger reward, and is gone before training",
            lambda point: _puppet(point, _SHILL_ENDINGS[int(point[2])]),
            (*BIDS, Axis("ending", 0, len(_SHILL_ENDINGS) - 1, whole=True)),
        ),
        among_eight(
            "puppet-declines",
            "a name of its own replies last, and declines",
            _latecomer,
            (Axis("budget", 0.05, 50.0, log=True), Axis("tick", 0, 3, whole=True)),
        ),
        *(
            among_eight(
                f"puppet-stays-away-{rule}",
                f"a name of its own signs, and does not deliver (`unearned: {rule}`)",
                _staying_away(rule),
                BIDS,
                remains="invited by `unearned: refund`" if rule == "refund" else "",
            )
            for rule in ("fund", "refund", "share")
        ),
        among_eight(
            "puppet-delivers",
            "a name of its own sells, and delivers noise",
            lambda point: _puppet(point, "delivers"),
            BIDS,
            remains="nobody can tell such a name from an owner's",
        ),
        among_eight(
            "early-settlement",
            "settles, or lets the deadline settle, when it suits it",
            _early,
            (
                Axis("values assumed up to", 1.001, 100.0, log=True),
                Axis("tick", 0, 4, whole=True),
            ),
        ),
        among_eight(
            "smallest-budget",
            "asks each owner for as much as it can bear (`min_budget`)",
            _with_minimum,
            (Axis("min_budget", 0.1, 1.25),),
            remains="a take-it-or-leave-it offer: the card says it, and owners may stay away",
            was_possible=False,
        ),
    ]


def among_eight(
    key: str,
    deviation: str,
    scenario: Callable[[Point], Scenario],
    axes: tuple[Axis, ...],
    *,
    intended: Scenario | None = None,
    remains: str = "",
    was_possible: bool = True,
) -> Case:
    """Return the row of a buyer among eight owners of value 1."""
    owners = equal_owners(8)
    return Case(
        key=key,
        party="buyer",
        deviation=deviation,
        where="8 owners of value 1",
        reference=HONEST,
        intended=intended or Scenario(TradeSetting(), owners),
        axes=axes,
        scenario=scenario,
        score=cost_of(HONEST_TOTAL, REWARD / HONEST_TOTAL, owners),
        owners=dict.fromkeys(owners, 1.0),
        remains=remains,
        was_possible=was_possible,
    )


def _puppet(point: Point, ending: Ending, *, rule: str = "fund") -> Scenario:
    puppet = Actor(1.0, point[1], ending=ending)
    return Scenario(
        TradeSetting(reward=point[0], unearned=rule), {**equal_owners(8), "puppet": puppet}
    )


def _staying_away(rule: str) -> Callable[[Point], Scenario]:
    return lambda point: _puppet(point, "stays away", rule=rule)


def _latecomer(point: Point) -> Scenario:
    budget, tick = point
    puppet = Latecomer(1.0, ending="declines", budget=budget, tick=int(tick))
    return Scenario(TradeSetting(settle_at=int(tick)), {**equal_owners(8), "puppet": puppet})


def _early(point: Point) -> Scenario:
    """Settle at a tick; where that is refused, let the deadline come with it.

    A name of the buyer's that replies at the end of each tick, with next to nothing, keeps it open.
    """
    high, tick = point
    setting = TradeSetting(assumed_high=high, settle_at=int(tick), ticks=int(tick) + 1)
    return Scenario(setting, {**equal_owners(8), "slow": Latecomer(1.0, budget=1e-9)})


def _with_minimum(point: Point) -> Scenario:
    names = {name: Honest(1.0, min_budget=point[0]) for name in equal_owners(8)}
    return Scenario(TradeSetting(min_budget=point[0]), names)
