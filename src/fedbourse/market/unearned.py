"""Where pay goes that nobody earned: decided by the card, and never by who could cause it.

A device that does not deliver a round leaves its pay of that round. By default it goes to the
market's fund, which no party of any task controls. Two other rules exist, and each invites
somebody to cause what it pays for (``study deviations`` has the numbers):

- ``refund``: back to the buyer, who may then take part under another name and stay away;
- ``share``: to those who delivered, one of whom may take part under another name and stay away.

Where a task is cancelled, rounds that were never closed are not bought: their pay is the buyer's.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from fedbourse.ledger import Transfer
from fedbourse.market.service import FUND, escrow
from fedbourse.units import MicroCredits
from fedbourse.wire.messages import earned

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fedbourse.market.ports import Unit
    from fedbourse.market.service import Market
    from fedbourse.market.task import Task


@dataclass(frozen=True)
class Remainder:
    """What escrow still held when a task ended, and where it went, in micro-credits."""

    refunded: int = 0
    fund: int = 0
    shared: int = 0

    @property
    def document(self) -> dict[str, int]:
        """Return the amounts as the log holds them."""
        return {
            "refunded_micro": self.refunded,
            "fund_micro": self.fund,
            "shared_micro": self.shared,
        }


def empty_escrow(market: Market, unit: Unit, task: Task, *, closed_rounds: int) -> Remainder:
    """Pay out all that is left in escrow when a task ends after so many closed rounds."""
    account = escrow(task.id)
    left = unit.balance(account)
    if not left:
        return Remainder()
    shares: dict[str, int] = {}
    absent = 0
    if closed_rounds and task.card.vesting == "by-round":
        rounds, lines = task.card.rounds, unit.lines(task.id)
        still_open = _deliverers(unit, task, closed_rounds) if closed_rounds < rounds else []
        for line in lines:
            closed = line.answered - (line.owner in still_open)
            absent += earned(line.payment, answered=closed_rounds, rounds=rounds)
            absent -= earned(line.payment, answered=closed, rounds=rounds)
        if task.card.unearned == "share" and absent:
            pay = shared_pay(
                {line.owner: int(line.payment) for line in lines},
                (_deliverers(unit, task, number) for number in range(closed_rounds)),
                rounds=rounds,
                still_open=still_open,
            )
            shares = {e.owner: pay[e.owner] - e.earned for e in lines if pay[e.owner] > e.earned}
    shared = sum(shares.values())
    fund = 0 if task.card.unearned == "refund" else max(0, absent - shared)
    remainder = Remainder(refunded=left - shared - fund, fund=fund, shared=shared)
    for owner, bonus in shares.items():
        unit.earn(task.id, owner, bonus)
    unit.post(_transfers(task, shares, remainder), at_ms=market.now_ms())
    return remainder


def _transfers(task: Task, shares: Mapping[str, int], remainder: Remainder) -> list[Transfer]:
    account = escrow(task.id)
    moves = [
        (f"{task.id}/{owner}/share", owner, bonus, "rounds that others did not deliver")
        for owner, bonus in shares.items()
    ]
    moves += [
        (f"{task.id}/fund", FUND, remainder.fund, "rounds that were not delivered"),
        (f"{task.id}/refund", task.buyer, remainder.refunded, "not earned"),
    ]
    return [
        Transfer(id, account, target, MicroCredits(amount), memo)
        for id, target, amount, memo in moves
        if amount
    ]


def _deliverers(unit: Unit, task: Task, number: int) -> list[str]:
    return [answer.owner for answer in unit.answers(task.id, number)]


def shared_pay(
    payments: Mapping[str, int],
    deliverers: Iterable[Iterable[str]],
    *,
    rounds: int,
    still_open: Iterable[str] = (),
) -> dict[str, int]:
    """Return what owners earn where each round's pay is shared by those who delivered it.

    Each round brings R/T, in proportion to payments; a round that nobody delivered brings nobody
    anything. In a round that was ``still_open`` when the task ended, who delivered earns its own
    part alone. Sums are exact; what floors leave goes to the largest remainders.

    >>> shared_pay({"a": 6, "b": 4}, [["a", "b"], ["a"]], rounds=2)
    {'a': 8, 'b': 2}
    """
    reward = sum(payments.values())
    exact = dict.fromkeys(payments, Fraction(0))
    for names in deliverers:
        there = list(names)
        total = sum(payments[name] for name in there)
        for name in there:
            exact[name] += Fraction(reward * payments[name], rounds * total)
    for name in still_open:
        exact[name] += Fraction(payments[name], rounds)
    pay = {name: int(amount) for name, amount in exact.items()}
    left = int(sum(exact.values(), Fraction(0))) - sum(pay.values())
    by_remainder = sorted(exact, key=lambda name: (pay[name] - exact[name], name))
    for name in by_remainder[:left]:
        pay[name] += 1
    return pay
