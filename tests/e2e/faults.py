"""What a server can do wrong, to prove that the tests would see it.

Each fault is planted in a forked server only, by changing the product's functions there.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import Any


def answers_before_the_commit() -> None:
    """Let a request be answered while its transaction has yet to end."""
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

    _replace_carry_out(lambda store, *args, **options: carry_out(Hasty(store), *args, **options))


def forgets_what_it_answered() -> None:
    """Keep no answers, so that a request that comes again is carried out again."""
    from fedbourse.storage.sql import SqlUnit

    keep = SqlUnit.keep_response

    def keep_another(unit: Any, caller: str, key: str, response: Any) -> None:
        keep(unit, caller, key, response)
        unit.purge(now_ms=2**62)

    SqlUnit.keep_response = keep_another  # type: ignore[method-assign]


def pays_in_a_second_transaction() -> None:
    """Store an answer first, and what it earned afterwards."""
    from fedbourse.market.service import Market
    from fedbourse.web import writes

    carry_out, pay = writes.carry_out, Market.pay
    owed = threading.local()

    def pay_later(market: Market, unit: Any, *what: Any) -> bool:
        if what[-1].startswith("answer "):
            owed.transfer = (market, what)
            return True
        return pay(market, unit, *what)

    def carry_out_and_pay(store: Any, *args: Any, **options: Any) -> Any:
        owed.transfer = None
        outcome = carry_out(store, *args, **options)
        if owed.transfer:
            market, what = owed.transfer
            with store.begin() as unit:
                pay(market, unit, *what)
        return outcome

    Market.pay = pay_later  # type: ignore[method-assign]
    _replace_carry_out(carry_out_and_pay)


def marks_payouts_before_it_hands_them_over() -> None:
    """Store that a payout was handed over, and hand it over afterwards."""
    from fedbourse.market import payouts

    def begin(market: Any, unit: Any, seen: Any) -> Any:
        payout = unit.payout(seen.id, lock="change")
        return payouts._move(market, unit, payout, payouts.PayoutState.SENT)

    payouts._begin = begin


def _replace_carry_out(other: Any) -> None:
    from fedbourse.web import doors

    doors.carry_out = other  # type: ignore[attr-defined]


FAULTS = {
    fault.__name__: fault
    for fault in (
        answers_before_the_commit,
        forgets_what_it_answered,
        pays_in_a_second_transaction,
        marks_payouts_before_it_hands_them_over,
    )
}
