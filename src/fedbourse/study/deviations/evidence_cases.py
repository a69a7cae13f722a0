"""What devices try that have no data, few, or others than the buyer's, with evidence and without.

Whoever sends no gradient of its own records loses no privacy by it: its utility is its pay, and as
intended it stays out. The buyer tries references of its own making.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbourse.study.deviations import sending
from fedbourse.study.deviations.buyer_cases import BIDS, among_eight
from fedbourse.study.deviations.cases import Case, utility_of
from fedbourse.study.deviations.owner_cases import HONEST, VALUE, equal_owners
from fedbourse.study.deviations.play import Scenario, TradeSetting
from fedbourse.study.deviations.search import Axis, Point
from fedbourse.study.deviations.strategies import Actor, Honest, Quitter

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.learning.evidence import Population
    from fedbourse.study.deviations.play import Strategy
    from fedbourse.study.deviations.sending import Sender

_RIVALS = {"owner-1": 1.0, "owner-1.4": 1.4}
_ACTS_AS = Axis("acts as", 0.01, 5.0, log=True)
_ANGLE = Axis("reference turned by", 0.0, 180.0)
_NO_EVIDENCE, _EVIDENCE = TradeSetting(), TradeSetting(evidence="like-reference")
_JUDGED = TradeSetting(evidence="like-reference", min_budget=1.0)
"""Each owner sells enough to be judged alone; the honest ones sell more by themselves."""
_APART = 45.0
"""How far the lines of the two kinds of owners lie from that of a reference that fits both."""
_MIXED = {
    f"owner-{number}": sending.of_records(_APART if number % 2 else -_APART)
    for number in range(1, 9)
}


def owner_evidence_cases() -> list[Case]:
    """Return the rows of devices that do not send what they sold, or that hold one class only."""
    return [
        _paid_for_nothing(
            "no-data-no-evidence",
            "has no data and sends noise alone, without evidence",
            lambda point: sending.nothing,
            setting=_NO_EVIDENCE,
            remains="invited by a card without evidence",
        ),
        _paid_for_nothing(
            "no-data-small-budget",
            "has no data and sends noise alone, with evidence",
            lambda point: sending.nothing,
            setting=_EVIDENCE,
            remains="a budget too small to be judged; the card's `min_budget` prevents it",
        ),
        _paid_for_nothing(
            "no-data",
            "has no data and sends noise alone, with evidence and a `min_budget`",
            lambda point: sending.nothing,
        ),
        _paid_for_nothing(
            "echo",
            "has no data and sends the model's own steps back, with evidence and a `min_budget`",
            lambda point: sending.echo(point[1]),
            Axis("length", 1e-3, 1.0, log=True),
        ),
        _paid_for_nothing(
            "ten-records-no-evidence",
            "has ten of 100 records and amplifies them, without evidence",
            lambda point: sending.amplified(point[1]),
            Axis("factor", 1.0, 10.0),
            setting=_NO_EVIDENCE,
            remains="invited by a card without evidence",
        ),
        _paid_for_nothing(
            "ten-records",
            "has ten of 100 records and amplifies them, with evidence and a `min_budget`",
            lambda point: sending.amplified(point[1]),
            Axis("factor", 1.0, 10.0),
            remains="evidence shows that somebody knows the direction, not how many records",
        ),
        _one_class(
            "like-reference",
            remains="it is unlike the reference: evidence takes the pay that honest work earned",
        ),
        _one_class("any-class-mixture"),
    ]


def buyer_evidence_cases() -> list[Case]:
    """Return the rows of a buyer that makes use of its reference."""
    return [
        among_eight(
            "bad-reference",
            "gives a reference that fits half of the owners, or none",
            lambda point: _turned(point[0]),
            (_ANGLE,),
            intended=_turned(0.0),
            was_possible=False,
        ),
        among_eight(
            "puppet-knows-reference",
            "gives any reference, and a name of its own sends its gradient",
            _puppet,
            (*BIDS, _ANGLE),
            intended=Scenario(_EVIDENCE, equal_owners(8)),
            remains="nobody can tell such a name from an owner's",
            was_possible=False,
        ),
    ]


def _paid_for_nothing(
    key: str,
    deviation: str,
    sender: Callable[[Point], Sender],
    *axes: Axis,
    setting: TradeSetting = _JUDGED,
    remains: str = "",
) -> Case:
    """Return the row of a device that loses no privacy, beside two honest owners."""
    least = setting.min_budget
    rivals: dict[str, Strategy] = {
        name: Honest(value, min_budget=least) for name, value in _RIVALS.items()
    }

    def scenario(point: Point) -> Scenario:
        names = {**rivals, "deviator": Actor(VALUE, point[0], min_budget=least)}
        return Scenario(setting, names, {"deviator": sender(point)})

    return Case(
        key=key,
        party="owner",
        deviation=deviation,
        where="values 1, 1.4",
        reference=HONEST,
        intended=Scenario(setting, rivals),
        axes=(_ACTS_AS, *axes),
        scenario=scenario,
        score=utility_of(0.0, _RIVALS),
        owners=_RIVALS,
        remains=remains,
    )


def _one_class(population: Population, *, remains: str = "") -> Case:
    """Return the row of an honest owner whose records are all of one class."""
    setting, rivals = TradeSetting(evidence=population), equal_owners(7)
    sends = {"deviator": sending.of_one_class}

    def scenario(point: Point) -> Scenario:
        return Scenario(setting, {**rivals, "deviator": Quitter(1.0, rounds=int(point[0]))}, sends)

    return Case(
        key=f"one-class-{population}",
        party="owner",
        deviation="has records of one class only, and delivers fewer rounds than it sold, or none "
        f"(`population: {population}`)",
        where="8 owners of value 1",
        reference=HONEST,
        intended=Scenario(setting, {**rivals, "deviator": Honest(1.0)}, sends),
        axes=(Axis("rounds", 0, 5, whole=True),),
        scenario=scenario,
        score=utility_of(1.0, rivals),
        owners=dict.fromkeys(rivals, 1.0),
        remains=remains,
        was_possible=False,
    )


def _turned(angle: float) -> Scenario:
    setting = TradeSetting(evidence="like-reference", reference_angle=angle)
    return Scenario(setting, equal_owners(8), _MIXED)


def _puppet(point: Point) -> Scenario:
    reward, acts_as, angle = point
    setting = TradeSetting(reward=reward, evidence="like-reference", reference_angle=angle)
    names = {**equal_owners(8), "puppet": Actor(1.0, acts_as)}
    return Scenario(setting, names, {"puppet": sending.of_reference(angle)})
