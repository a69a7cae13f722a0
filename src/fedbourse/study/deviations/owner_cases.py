"""What owners try: alone, under several names, and all together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbourse.study.deviations.cases import Case, utility_of
from fedbourse.study.deviations.play import Scenario, Strategy, TradeOutcome, TradeSetting
from fedbourse.study.deviations.search import Axis, Point
from fedbourse.study.deviations.strategies import (
    Actor,
    Ending,
    Honest,
    Jumper,
    Leaver,
    Silent,
    Slow,
    Sniper,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Names = dict[str, "Strategy"]

VALUE, RIVALS = 1.2, (1.0, 1.4)
"""Three owners; the second deviates."""
ENDINGS: tuple[Ending, ...] = ("stays away", "declines", "does not sign")
HONEST, CHEAPER = "honest", "acting cheaper"
_PAPER = "inherent in the paper's rule"
_ACTS_AS = Axis("acts as", 0.01, 5.0, log=True)
_PLAIN = TradeSetting()


@dataclass(frozen=True)
class _Owners:
    """The one who deviates, and the others."""

    where: str
    value: float
    rivals: Mapping[str, float]


_THREE = _Owners("values 1, 1.2, 1.4", VALUE, {f"owner-{value:g}": value for value in RIVALS})


def owner_cases() -> list[Case]:
    """Return the rows of owners."""
    return [
        _owner_case(
            "acting-cheaper",
            "acts as if it valued privacy less",
            lambda point: {"deviator": Actor(VALUE, point[0])},
            (_ACTS_AS,),
            reference=HONEST,
            remains=_PAPER,
        ),
        _owner_case(
            "several-names",
            "takes part under several names",
            lambda point: {f"name-{number}": Honest(1.0) for number in range(int(point[0]))},
            (Axis("names", 1, 14, whole=True),),
            among=_equals(10),
            reference=HONEST,
            remains=_PAPER,
        ),
        *(
            _owner_case(
                f"puppet-{rule}",
                f"a second name bids, and does not sign or deliver (`unearned: {rule}`)",
                _puppets,
                (
                    Axis("acts as", 1e-3, 1.5, log=True),
                    Axis("puppet acts as", 1e-5, 1.5, log=True),
                    Axis("ending", 0, len(ENDINGS) - 1, whole=True),
                ),
                among=_equals(8),
                setting=TradeSetting(unearned=rule),
                remains="invited by `unearned: share`" if rule == "share" else "",
            )
            for rule in ("fund", "refund", "share")
        ),
        _owner_case(
            "sniping",
            "steers P with false replies, and replies truly at the last moment",
            lambda point: {"deviator": Sniper(VALUE, point[0], rivals=RIVALS, swing=point[1])},
            _STEERS,
        ),
        _owner_case(
            "silent-device",
            "the same, while a second name that never replies keeps each tick open",
            lambda point: {
                "deviator": Sniper(VALUE, point[0], rivals=RIVALS, swing=point[1], accomplice=True),
                "silent": Silent(VALUE),
            },
            _STEERS,
        ),
        _owner_case(
            "jumping-replies",
            "replies with a share that jumps at one total",
            lambda point: {
                "deviator": Jumper(VALUE, edge=point[0], below=point[1], above=point[2])
            },
            (
                Axis("edge", 5.0, 9.99),
                Axis("share below", 0.3, 1.0),
                Axis("share above", 1e-3, 0.5, log=True),
            ),
        ),
        _owner_case(
            "leaving",
            "other names of its own hold P up, and leave before it converges",
            _leavers,
            (
                Axis("acts as", 0.1, 1.2, log=True),
                Axis("names", 1, 8, whole=True),
                Axis("scale", 0.5, 8.0, log=True),
                Axis("swing", 0.0, 0.5),
                Axis("one by one", 0, 1, whole=True),
            ),
            effort=0.25,
        ),
        _owner_case(
            "not-replying",
            "replies to the first tick, and to no other",
            lambda point: {"deviator": Silent(VALUE, budget=point[0])},
            (Axis("budget", 0.05, 20.0, log=True),),
            reference=HONEST,
        ),
        *(
            _owner_case(
                key,
                deviation,
                _ending(ending),
                (_ACTS_AS,),
                reference=HONEST,
            )
            for key, deviation, ending in _ENDINGS
        ),
        _owner_case(
            "paid-upfront",
            "is paid upfront and delivers nothing",
            _ending("stays away"),
            (_ACTS_AS,),
            setting=TradeSetting(vesting="upfront"),
            reference=HONEST,
            remains="invited by `vesting: upfront`, which both sides must accept",
        ),
        _owner_case(
            "late-replies",
            "two names, one of which replies as late as it may; `plans_s` holds 8 ticks",
            _late,
            (
                Axis("scale", 0.05, 10.0, log=True),
                Axis("power", 1.5, 30.0, log=True),
                Axis("second acts as", 0.01, 5.0, log=True),
            ),
            setting=TradeSetting(ticks=8),
            remains="invited by a card with time for fewer than 60 ticks",
        ),
        _ring("ring", "all act as if they valued privacy more", TradeSetting()),
        _ring(
            "ring-with-minimum",
            "the same, with `min_total_budget` at half of what honest owners sell",
            TradeSetting(min_total_budget=HONEST_TOTAL / 2),
        ),
    ]


_STEERS = (Axis("acts as", 1e-3, 1.2, log=True), Axis("swing", 0.0, 1.0))
_ENDINGS: tuple[tuple[str, str, Ending], ...] = (
    ("not-signing", "does not sign its terms", "does not sign"),
    ("not-delivering", "signs, and delivers nothing", "stays away"),
)
HONEST_TOTAL = 10.0 / 1.8
"""What the three owners sell for R = 10: tau is half the sum of their values."""


def best_act(value: float, rivals: tuple[float, ...]) -> float:
    """Return the value that it is best to act as, where all rivals keep taking part.

    Only P matters: U = (R - v P) s, s = 1 - k + V P/R, for k rivals whose values sum to V.

    >>> round(best_act(1.2, (1.0, 1.4)), 9)
    0.8
    """
    rival_sum, count = sum(rivals), len(rivals)
    part = (rival_sum + value * (count - 1)) / (2 * value * rival_sum)  # P/R
    return count / part - rival_sum


def equal_owners(count: int) -> Names:
    """Return owners of value 1 who play as intended."""
    return {f"owner-{number}": Honest(1.0) for number in range(1, count + 1)}


def _equals(count: int) -> _Owners:
    return _Owners(f"{count} owners of value 1", 1.0, dict.fromkeys(equal_owners(count - 1), 1.0))


def _owner_case(
    key: str,
    deviation: str,
    names: Callable[[Point], Mapping[str, Strategy]],
    axes: tuple[Axis, ...],
    *,
    among: _Owners = _THREE,
    setting: TradeSetting = _PLAIN,
    reference: str = CHEAPER,
    remains: str = "",
    effort: float = 1.0,
) -> Case:
    """Return the row of one owner among others, with whatever names it brings."""
    rivals: Names = {name: Honest(value) for name, value in among.rivals.items()}
    acts_as = among.value
    if reference == CHEAPER:
        acts_as = best_act(among.value, tuple(among.rivals.values()))
    return Case(
        key=key,
        party="owner",
        deviation=deviation,
        where=among.where,
        reference=reference,
        intended=Scenario(setting, {**rivals, "deviator": Actor(among.value, acts_as)}),
        axes=axes,
        scenario=lambda point: Scenario(setting, {**rivals, **names(point)}),
        score=utility_of(among.value, rivals),
        owners=among.rivals,
        remains=remains,
        effort=effort,
    )


def _ending(ending: Ending) -> Callable[[Point], Names]:
    return lambda point: {"deviator": Actor(VALUE, point[0], ending=ending)}


def _leavers(point: Point) -> Names:
    acts_as, count, scale, swing, one_by_one = point
    leavers: Names = {
        f"leaver-{turn}": Leaver(1.0, place=turn if one_by_one else None, scale=scale, swing=swing)
        for turn in range(int(count))
    }
    return {"deviator": Actor(VALUE, acts_as), **leavers}


def _puppets(point: Point) -> Names:
    own, puppet, ending = point
    return {
        "deviator": Actor(1.0, own),
        "puppet": Actor(1.0, puppet, ending=ENDINGS[int(ending)]),
    }


def _late(point: Point) -> Names:
    scale, power, acts_as = point
    return {"deviator": Slow(VALUE, scale=scale, power=power), "second": Actor(VALUE, acts_as)}


def _ring(key: str, deviation: str, setting: TradeSetting) -> Case:
    values = {"owner-1": 1.0, "owner-1.2": VALUE, "owner-1.4": 1.4}

    def scenario(point: Point) -> Scenario:
        names = {name: Actor(value, value * point[0]) for name, value in values.items()}
        return Scenario(setting, names)

    def score(scenario: Scenario, outcome: TradeOutcome) -> float:
        return sum(outcome.utility(name, value=value) for name, value in values.items())

    return Case(
        key=key,
        party="owners",
        deviation=deviation,
        where="values 1, 1.2, 1.4",
        reference=HONEST,
        intended=scenario((1.0,)),
        axes=(Axis("values raised by", 1.0, 1e4, log=True),),
        scenario=scenario,
        score=score,
        owners={},
        remains=f"{_PAPER}; the card's `min_total_budget` bounds it",
    )
