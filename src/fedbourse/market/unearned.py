"""Where pay goes that nobody earned: decided by the card, and never by who could cause it.

A device that does not deliver a round leaves its pay of that round. By default it goes to the
market's fund, which no party of any task controls. Two other rules exist, and each invites
somebody to cause what it pays for (``study deviations`` has the numbers):

- ``refund``: back to the buyer, who may then take part under another name and stay away;
- ``share``: to those who delivered, one of whom may take part under another name and stay away.

Where a task is cancelled, rounds that were never closed are not bought: their pay is the buyer's.

What a clock leaves of the reward goes to the fund too, as if the fund were an owner who delivers
every round: returned to the buyer, it would pay for names that lower the price.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedbourse.ledger import Transfer
from fedbourse.market.service import FUND, escrow, present
from fedbourse.protocol.messages import earned
from fedbourse.units import MicroCredits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fedbourse.market.ports import Transaction
    from fedbourse.market.records import Allocation, Task
    from fedbourse.market.service import Market
    from fedbourse.tasks.card import TaskCard


@dataclass(frozen=True)
class Remainder:
    """What escrow still held when a task ended, and where it went, in micro-credits."""

    refunded: int = 0
    fund: int = 0
    shares: Mapping[str, int] = field(default_factory=dict)
    """What owners get of the rounds that others did not deliver."""

    @property
    def document(self) -> dict[str, int]:
        """Return the amounts as the log holds them."""
        return {
            "refunded_micro": self.refunded,
            "fund_micro": self.fund,
            "shared_micro": sum(self.shares.values()),
        }


def empty_escrow(market: Market, tx: Transaction, task: Task, *, closed_rounds: int) -> Remainder:
    """Pay out all that is left in escrow when a task ends after so many closed rounds."""
    left = tx.balance(escrow(task.id))
    if not left:
        return Remainder()
    absent, lost, unspent, shares = 0, 0, 0, {}
    if closed_rounds and task.card.vesting == "by-round":
        allocations = [allocation for allocation in tx.allocations(task.id) if allocation.trained]
        payments = {allocation.owner: int(allocation.payment) for allocation in allocations}
        # Updates to a round that was never closed are paid for, and make up for none before it.
        early = {update.owner for update in tx.updates(task.id, closed_rounds)}
        delivered = {
            allocation.owner: allocation.delivered - (allocation.owner in early)
            for allocation in allocations
        }
        absent = undelivered_pay(
            payments, delivered, closed_rounds=closed_rounds, rounds=task.card.rounds
        )
        lost = sum(forfeited(each, rounds=task.card.rounds) for each in allocations)
        unspent = unspent_pay(
            task.card,
            present(task.reward) - sum(payments.values()),
            closed_rounds=closed_rounds,
        )
        if task.card.unearned == "share" and absent:
            shares = shared_bonuses(
                payments,
                _deliverers(tx, task, closed_rounds),
                rounds=task.card.rounds,
                most=absent,
            )
    shared = sum(shares.values())
    fund = 0 if task.card.unearned == "refund" else absent - shared + lost + unspent
    remainder = Remainder(refunded=left - shared - fund, fund=fund, shares=shares)
    for owner, bonus in shares.items():
        tx.earn(task.id, owner, bonus)
    tx.post(_transfers(task, remainder), at_ms=market.now_ms())
    return remainder


def unspent_pay(card: TaskCard, unspent: int, *, closed_rounds: int) -> int:
    """Return what the fund gets of the part of the reward that a clock did not spend."""
    if not card.sells_lots:
        return 0
    return earned(unspent, delivered=closed_rounds, rounds=card.rounds)


def forfeited(allocation: Allocation, *, rounds: int) -> int:
    """Return what a dismissed owner delivered and was not paid for, once that was decided."""
    if allocation.state != "dismissed":
        return 0
    delivered = earned(allocation.payment, delivered=allocation.delivered, rounds=rounds)
    return delivered - allocation.earned


def _transfers(task: Task, remainder: Remainder) -> list[Transfer]:
    account = escrow(task.id)
    moves = [
        (f"{task.id}/{owner}/share", owner, bonus, "rounds that others did not deliver")
        for owner, bonus in remainder.shares.items()
    ]
    moves += [
        (f"{task.id}/fund", FUND, remainder.fund, "pay that nobody earned"),
        (f"{task.id}/refund", task.buyer, remainder.refunded, "not earned"),
    ]
    return [
        Transfer(id, account, target, MicroCredits(amount), memo)
        for id, target, amount, memo in moves
        if amount
    ]


def _deliverers(tx: Transaction, task: Task, closed_rounds: int) -> list[list[str]]:
    return [
        [update.owner for update in tx.updates(task.id, number)] for number in range(closed_rounds)
    ]


def undelivered_pay(
    payments: Mapping[str, int], delivered: Mapping[str, int], *, closed_rounds: int, rounds: int
) -> int:
    """Return what closed rounds would have brought those who did not deliver them.

    >>> undelivered_pay({"a": 6, "b": 4}, {"a": 2, "b": 1}, closed_rounds=2, rounds=2)
    2
    """
    return sum(
        earned(payment, delivered=closed_rounds, rounds=rounds)
        - earned(payment, delivered=delivered[owner], rounds=rounds)
        for owner, payment in payments.items()
    )


def shared_bonuses(
    payments: Mapping[str, int], deliverers: Sequence[Sequence[str]], *, rounds: int, most: int
) -> dict[str, int]:
    """Return what each owner gets of the rounds that others did not deliver.

    They sum to ``most`` at most, the pay of those rounds: where a task is cancelled, the floors of
    all that owners have earned leave a few micro-credits that are not shared.
    """
    delivered = Counter(name for names in deliverers for name in names)
    bonuses = {}
    for owner, pay in sorted(shared_pay(payments, deliverers, rounds=rounds).items()):
        bonus = pay - earned(payments[owner], delivered=delivered[owner], rounds=rounds)
        bonus = min(bonus, most)
        if bonus:
            bonuses[owner] = bonus
            most -= bonus
    return bonuses


def shared_pay(
    payments: Mapping[str, int], deliverers: Iterable[Sequence[str]], *, rounds: int
) -> dict[str, int]:
    """Return what owners earn where each round's pay is shared by those who delivered it.

    Each round brings R/T, in proportion to payments; a round that nobody delivered brings nobody
    anything. Sums are exact; what floors leave goes to the largest remainders.

    >>> shared_pay({"a": 6, "b": 4}, [["a", "b"], ["a"]], rounds=2)
    {'a': 8, 'b': 2}
    """
    reward = sum(payments.values())
    delivered = [(names, sum(payments[name] for name in names)) for names in deliverers if names]
    # Every round's 1/total, in units of one over their least common multiple.
    multiple = math.lcm(*{total for _, total in delivered})
    weights = dict.fromkeys(payments, 0)
    for names, total in delivered:
        for name in names:
            weights[name] += multiple // total
    exact = {name: reward * payments[name] * weight for name, weight in weights.items()}
    denominator = rounds * multiple
    pay = {name: amount // denominator for name, amount in exact.items()}
    left = sum(exact.values()) // denominator - sum(pay.values())
    by_remainder = sorted(exact, key=lambda name: (-(exact[name] % denominator), name))
    for name in by_remainder[:left]:
        pay[name] += 1
    return pay
