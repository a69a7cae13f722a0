"""Money in and out: a payment adapter vouches for deposits and carries out withdrawals."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

from fedbourse.errors import InvalidInput, NotAllowed
from fedbourse.ledger import OUTSIDE
from fedbourse.market.parties import party
from fedbourse.market.service import FUND
from fedbourse.market.task import Payout
from fedbourse.units import MicroCredits, whole_number
from fedbourse.wire.plain_text import plain_text

if TYPE_CHECKING:
    from fedbourse.market.parties import Caller, Scope
    from fedbourse.market.ports import Payments, Store, Unit
    from fedbourse.market.service import Market

_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
AMOUNT_MICRO_MAX = 2**53 - 1
MOVERS: tuple[Scope, ...] = ("buyer", "owner", "operator")
"""An auditor's token changes nothing, whosever it is."""


def deposit(
    market: Market, unit: Unit, caller: Caller, payments: Payments, *, reference: str
) -> tuple[str, MicroCredits]:
    """Credit money that came in with a reference, once; return whose account, and how much."""
    caller.require(*MOVERS)
    if not isinstance(reference, str) or not _REFERENCE.fullmatch(reference):
        raise InvalidInput(
            "a reference has up to 100 letters, digits, dots, colons and dashes; "
            f"found {reference!r:.80}"
        )
    account, amount = payments.received(reference)
    if caller.party != account:
        caller.require("operator")
    route = OUTSIDE, party(account)
    market.pay(unit, f"deposit/{reference}", route, amount, f"deposit {reference}")
    return account, amount


def withdraw(
    market: Market,
    unit: Unit,
    caller: Caller,
    *,
    account: str,
    amount_micro: int,
    destination: str,
) -> Payout:
    """Take money out of an account; the payment adapter hands it over soon after."""
    caller.require(*MOVERS)
    if caller.party != party(account):
        raise NotAllowed(f"only {account} takes money out of its account; found {caller.party}")
    amount = whole_number("amount_micro", amount_micro, at_least=1)
    if amount > AMOUNT_MICRO_MAX:
        raise InvalidInput(f"amount_micro must be below 2^53; found {amount}")
    if not isinstance(destination, str) or not 1 <= len(destination.strip()) <= 200:
        raise InvalidInput("destination must say where the money goes, in up to 200 characters")
    plain_text("destination", destination)
    payout = Payout(
        id=secrets.token_hex(12),
        party=account,
        amount=MicroCredits(amount),
        destination=destination,
        at_ms=market.now_ms(),
    )
    route = account, OUTSIDE
    market.pay(unit, f"withdrawal/{payout.id}", route, amount, f"withdrawal {payout.id}")
    unit.add_payout(payout)
    return payout


def hand_over(market: Market, store: Store, payments: Payments, *, limit: int = 100) -> int:
    """Give payouts that left the books to the adapter; what a crash left undone is done again."""
    with store.read() as unit:
        waiting = unit.unsent_payouts(limit=limit)
    for payout in waiting:
        payments.pay(payout)
        with store.begin() as unit:
            unit.mark_sent(payout.id, at_ms=market.now_ms())
    return len(waiting)


def may_see(caller: Caller, account: str) -> None:
    """Refuse to show an account to anybody but its party, the operator and auditors.

    The fund is everybody's to see: what went into it is in the tasks' public logs.
    """
    if account not in (caller.party, FUND):
        caller.require("operator", "auditor")
