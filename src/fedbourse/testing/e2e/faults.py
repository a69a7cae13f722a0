"""What a server can do wrong, to prove that the tests would see it.

Each fault is planted in a forked server only, by changing the product's functions there.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import Any


def responds_before_the_commit() -> None:
    """Respond to a request while its transaction has yet to end."""
    from fedbourse.web import writes

    carry_out = writes.carry_out

    class Hasty:
        def __init__(self, store: Any) -> None:
            self._store = store

        @contextmanager
        def begin(self) -> Any:
            transaction = self._store.begin()
            yield transaction.__enter__()

            def end_later() -> None:
                time.sleep(0.1)
                transaction.__exit__(None, None, None)

            threading.Thread(target=end_later).start()

    _replace_carry_out(lambda store, *args, **options: carry_out(Hasty(store), *args, **options))  # type: ignore[arg-type]


def forgets_its_responses() -> None:
    """Keep no responses, so that a request that comes again is carried out again."""
    from fedbourse.storage.sql import SqlTransaction

    keep = SqlTransaction.keep_response

    def keep_another(tx: Any, caller: str, key: str, response: Any) -> None:
        keep(tx, caller, key, response)
        tx.purge(now_ms=2**62)

    SqlTransaction.keep_response = keep_another  # type: ignore[assignment]


def pays_in_a_second_transaction() -> None:
    """Store an update first, and what it earned afterwards."""
    from fedbourse.market.service import Market
    from fedbourse.web import writes

    carry_out, pay = writes.carry_out, Market.pay
    owed = threading.local()

    def pay_later(market: Market, tx: Any, *what: Any) -> bool:
        if what[1][1].startswith("owner:"):
            owed.transfer = (market, what)
            return True
        return pay(market, tx, *what)

    def carry_out_and_pay(store: Any, *args: Any, **options: Any) -> Any:
        owed.transfer = None
        outcome = carry_out(store, *args, **options)
        if owed.transfer:
            market, what = owed.transfer
            with store.begin() as tx:
                pay(market, tx, *what)
        return outcome

    Market.pay = pay_later  # type: ignore[assignment]
    _replace_carry_out(carry_out_and_pay)


def marks_payouts_before_it_hands_them_over() -> None:
    """Store that a payout was handed over, and hand it over afterwards."""
    from fedbourse.market.commands import payouts

    def begin(market: Any, tx: Any, seen: Any) -> Any:
        payout = tx.payout(seen.id, lock="change")
        return payouts._move(market, tx, payout, payouts.PayoutState.SENT)

    payouts._begin = begin  # type: ignore[assignment]


def releases_held_pay_in_a_second_transaction() -> None:
    """Decide on a block of rounds first, and release its held pay with the next round."""
    from fedbourse.market.commands import training

    commands: Any = training
    close_round, end_block = commands.close_round, commands.end_block
    owed: list[Any] = []

    class Deferring:
        def __init__(self, tx: Any) -> None:
            self._tx = tx

        def __getattr__(self, name: str) -> Any:
            return getattr(self._tx, name)

        def post(self, transfers: Any, *, at_ms: int) -> None:
            owed.extend(transfers)

    def end_block_and_owe(market: Any, tx: Any, task: Any) -> Any:
        return end_block(market, Deferring(tx), task)

    def pay_and_close_round(market: Any, tx: Any, task: str) -> Any:
        tx.post([owed.pop() for _ in range(len(owed))], at_ms=market.now_ms())
        return close_round(market, tx, task)

    commands.end_block, commands.close_round = end_block_and_owe, pay_and_close_round


def _replace_carry_out(other: Any) -> None:
    from fedbourse.web import context

    context.carry_out = other  # type: ignore[attr-defined]


FAULTS = {
    fault.__name__: fault
    for fault in (
        responds_before_the_commit,
        forgets_its_responses,
        pays_in_a_second_transaction,
        marks_payouts_before_it_hands_them_over,
    )
}
"""What shows in any trade."""
EVIDENCE_FAULTS = {fault.__name__: fault for fault in (releases_held_pay_in_a_second_transaction,)}
"""What shows only where pay is held."""
