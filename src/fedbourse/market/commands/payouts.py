"""Money on its way out: pay-outs, their states, and the queue that hands them over.

A withdrawal moves money to the account ``payouts``, and that is all that its transaction does. The
queue hands it to the payment adapter later, while no transaction is open. The money leaves
``payouts`` once: to the outside when the pay-out is confirmed, or back to its party.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from fedbourse.encoding.documents import NOT_SHOWN, shown_as
from fedbourse.encoding.plain_text import plain_text
from fedbourse.errors import Conflict, InvalidInput, NotAllowed
from fedbourse.ledger import OUTSIDE
from fedbourse.market.commands.accounts import AMOUNT_MICRO_MAX, MOVERS
from fedbourse.market.parties import party
from fedbourse.units import MicroCredits, credits_text, whole_number

if TYPE_CHECKING:
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Payments, Store, Transaction
    from fedbourse.market.service import Market

PAYOUTS = "payouts"
"""The account of money that has left a party's account and is not known to have arrived."""
_DAY_MS = 24 * 3600 * 1000
_HOLD_MS = 60_000
"""An attempt that has not ended after so long is made again: whoever made it may be dead."""
_DELAY_MS, _DELAY_MS_MAX = 1000, 3600 * 1000
"""How long a failed pay-out waits: twice as long after each attempt, up to an hour."""
_NOTE_MAX = 200


class PayoutState(StrEnum):
    """Where a pay-out is."""

    REQUESTED = "requested"
    """The market has not handed it over yet."""
    SENT = "sent"
    """The payment adapter has it."""
    CONFIRMED = "confirmed"
    """The operator says that it has arrived."""
    FAILED = "failed"
    """The payment adapter refused it; it is tried again."""
    RETURNED = "returned"
    """The operator gave it up, and the money is back in the account."""


_S = PayoutState
NEXT: dict[PayoutState, tuple[PayoutState, ...]] = {
    _S.REQUESTED: (_S.SENT, _S.FAILED, _S.RETURNED),
    _S.FAILED: (_S.SENT, _S.FAILED, _S.RETURNED),
    _S.SENT: (_S.CONFIRMED, _S.RETURNED),
    _S.CONFIRMED: (),
    _S.RETURNED: (),
}
"""What may follow each state."""
WAITING = tuple(state for state in NEXT if _S.SENT in NEXT[state])
"""The states of those that the queue is still to hand over."""
OPEN = tuple(state for state in NEXT if NEXT[state])
"""The states of those whose money is in the account ``payouts``."""


@dataclass(frozen=True)
class Payout:
    """Money that is to leave the market, and how far it has come.

    requested: not handed over yet; sent: the market's bank has it; confirmed: it has arrived;
    failed: the bank refused it, and it is tried again; returned: its money is back.
    """

    id: str
    party: str
    amount: MicroCredits = field(metadata=shown_as("amount_micro"))
    destination: str
    at_ms: int
    """When it was requested."""
    state: PayoutState = PayoutState.REQUESTED
    changed_ms: int = 0
    """Since when it is in this state."""
    note: str = ""
    """Why it failed, or was returned."""
    steps: int = field(default=0, metadata=NOT_SHOWN)
    """How many states it has had before this one."""
    attempts: int = 0
    """How often the market began to hand it over."""
    trying: bool = field(default=False, metadata=NOT_SHOWN)
    """Whether the last attempt has not ended, as far as anybody knows."""
    due_ms: int = field(default=0, metadata=NOT_SHOWN)
    """When the queue takes it up, while it waits."""

    @property
    def waits(self) -> bool:
        """Whether the queue is still to hand it over."""
        return self.state in WAITING


@dataclass(frozen=True)
class PayoutStep:
    """One state that a pay-out has had."""

    payout: str
    number: int
    state: PayoutState
    at_ms: int
    note: str = ""


def request(
    market: Market,
    tx: Transaction,
    caller: Caller,
    *,
    account: str,
    amount_micro: int,
    destination: str,
) -> Payout:
    """Take money out of an account; the queue hands it over soon after."""
    caller.require(*MOVERS)
    if caller.party != party(account):
        raise NotAllowed(f"only {account} takes money out of its account; found {caller.party}")
    amount = MicroCredits(whole_number("amount_micro", amount_micro, at_least=1))
    if amount > AMOUNT_MICRO_MAX:
        raise InvalidInput(
            f"amount_micro must be at most {AMOUNT_MICRO_MAX}, which is "
            f"{credits_text(AMOUNT_MICRO_MAX)} credits; found {amount}"
        )
    limits = market.payout_limits
    if amount < limits.min_micro:
        raise InvalidInput(
            f"a withdrawal must be of at least {credits_text(limits.min_micro)} credits; "
            f"found {credits_text(amount)}"
        )
    if not isinstance(destination, str) or not 1 <= len(destination.strip()) <= 200:
        raise InvalidInput("destination must say where the money goes, in up to 200 characters")
    plain_text("destination", destination)
    now_ms = market.now_ms()
    id = f"{_id_at(now_ms)}{secrets.token_hex(6)}"
    payout = Payout(
        id, account, amount, destination, at_ms=now_ms, changed_ms=now_ms, due_ms=now_ms
    )
    market.pay(tx, f"withdrawal/{id}", (account, PAYOUTS), amount, f"withdrawal {id}")
    # Counted after the account was locked: of several requests at once each sees those before.
    if tx.count_payouts(account, after=_id_at(now_ms - _DAY_MS)) >= limits.per_day:
        raise Conflict(
            f"{account} may withdraw {limits.per_day} times within 24 hours, and has done so; "
            "withdraw more at a time, or wait"
        )
    tx.add_payout(payout)
    tx.add_payout_step(PayoutStep(id, 0, payout.state, now_ms))
    return payout


def _id_at(now_ms: int) -> str:
    """Return what ids of this moment begin with: in the order of ids the oldest is first."""
    return f"{now_ms:012x}"


@dataclass(frozen=True)
class HandedOver:
    """What one look at the queue came to."""

    sent: int
    failure: Exception | None
    """The first error of the payment adapter, where there was one."""


def hand_over(market: Market, store: Store, payments: Payments, *, limit: int = 100) -> HandedOver:
    """Hand those that are due to the payment adapter, oldest first.

    One that fails is due again later, and keeps no other waiting. An attempt is stored before it is
    made, so that nobody returns the money meanwhile. One that a crash cut short is made again: the
    adapter pays each id once.
    """
    with store.read() as tx:
        due = tx.due_payouts(now_ms=market.now_ms(), limit=limit)
    sent, failure = 0, None
    for payout in due:
        with store.begin() as tx:
            attempt = _begin(market, tx, payout)
        if attempt is None:
            continue
        try:
            payments.pay(attempt)
        except Exception as error:
            failure = failure or error
            with store.begin() as tx:
                _end(market, tx, attempt, PayoutState.FAILED, note=_note_of(error))
        else:
            with store.begin() as tx:
                _end(market, tx, attempt, PayoutState.SENT)
            sent += 1
    return HandedOver(sent, failure)


def take_up(market: Market, store: Store) -> None:
    """Let the queue take up at once what it was at when it was interrupted."""
    with store.begin() as tx:
        tx.hurry_payouts(now_ms=market.now_ms())


def _begin(market: Market, tx: Transaction, due: Payout) -> Payout | None:
    """Store that an attempt begins; None where somebody else was faster."""
    payout = tx.payout(due.id, lock="change")
    if not payout.waits or payout.attempts != due.attempts:
        return None
    payout = replace(
        payout,
        attempts=payout.attempts + 1,
        trying=True,
        due_ms=market.now_ms() + _HOLD_MS,
    )
    tx.save_payout(payout)
    return payout


def _end(
    market: Market, tx: Transaction, attempt: Payout, state: PayoutState, *, note: str = ""
) -> None:
    """Store how an attempt ended; what a later one found stays."""
    payout = tx.payout(attempt.id, lock="change")
    is_last = payout.attempts == attempt.attempts
    if payout.waits and (state is PayoutState.SENT or is_last):
        _move(market, tx, payout, state, note=note)


def delay_ms(attempts: int) -> int:
    """Return how long a pay-out waits after so many attempts that failed.

    >>> delay_ms(1), delay_ms(2), delay_ms(50)
    (1000, 2000, 3600000)
    """
    return min(_DELAY_MS << min(max(attempts - 1, 0), 30), _DELAY_MS_MAX)


def _note_of(error: Exception) -> str:
    return "".join(c if c.isprintable() else " " for c in str(error))[:_NOTE_MAX]


def confirm(market: Market, tx: Transaction, caller: Caller, payout_id: str) -> Payout:
    """Store the operator's word that a pay-out has arrived: its money has left the market."""
    caller.require("operator")
    payout = _move(market, tx, tx.payout(payout_id, lock="change"), PayoutState.CONFIRMED)
    _leave(market, tx, payout, OUTSIDE)
    return payout


@dataclass(frozen=True)
class Inquiry:
    """What the payment adapter says of a pay-out, and of which attempt that is true."""

    attempts: int
    paid: bool


def inquire(store: Store, payments: Payments, caller: Caller, payout_id: str) -> Inquiry:
    """Ask the payment adapter whether it has paid; no transaction may be open."""
    caller.require("operator")
    with store.read() as tx:
        attempts = tx.payout(payout_id).attempts
    return Inquiry(attempts, payments.has_paid(payout_id))


def give_back(
    market: Market,
    tx: Transaction,
    caller: Caller,
    payout_id: str,
    *,
    inquiry: Inquiry,
    reason: str,
) -> Payout:
    """Give a pay-out up at the operator's word, and return its money to its party.

    One that the adapter has counts as sent first: it is the operator who knows that it came back.
    """
    caller.require("operator")
    if len(reason) > _NOTE_MAX:
        raise InvalidInput(f"a reason has up to {_NOTE_MAX} characters; found {len(reason)}")
    plain_text("reason", reason)
    payout = tx.payout(payout_id, lock="change")
    if payout.waits and (payout.trying or payout.attempts != inquiry.attempts):
        raise Conflict(f"pay-out {payout.id} is being handed over right now; try again in a minute")
    if payout.waits and inquiry.paid:
        raise Conflict(
            f"pay-out {payout.id} is {payout.state}, and yet the payment adapter has it; it counts "
            "as sent after the next attempt, and can be returned then if the money came back"
        )
    payout = _move(market, tx, payout, PayoutState.RETURNED, note=reason)
    _leave(market, tx, payout, payout.party)
    return payout


def _leave(market: Market, tx: Transaction, payout: Payout, account: str) -> None:
    """Move a pay-out's money on: one id for both ways, so that the books themselves allow one."""
    memo = f"pay-out {payout.id} {payout.state}"
    market.pay(tx, f"payout/{payout.id}", (PAYOUTS, account), payout.amount, memo)


def _move(
    market: Market, tx: Transaction, payout: Payout, state: PayoutState, *, note: str = ""
) -> Payout:
    if state not in NEXT[payout.state]:
        allowed = ", ".join(NEXT[payout.state]) or "nothing"
        raise Conflict(
            f"pay-out {payout.id} is {payout.state}, which {allowed} may follow; found {state}"
        )
    now_ms = market.now_ms()
    payout = replace(
        payout,
        state=state,
        changed_ms=now_ms,
        note=note,
        steps=payout.steps + 1,
        trying=False,
        due_ms=now_ms + delay_ms(payout.attempts),
    )
    tx.save_payout(payout)
    tx.add_payout_step(PayoutStep(payout.id, payout.steps, state, now_ms, note))
    return payout


def payouts_of(
    tx: Transaction, caller: Caller, account: str, *, before: str | None = None, limit: int
) -> list[Payout]:
    """Return an account's pay-outs, newest first, to its party and the operator.

    They say where somebody's money goes, which auditors need not know.
    """
    if account != caller.party:
        caller.require("operator")
    return tx.payouts(account, before=before, limit=limit)


def queue(tx: Transaction, caller: Caller, *, after: str = "", limit: int) -> list[Payout]:
    """Return all pay-outs that are neither confirmed nor returned, oldest first."""
    caller.require("operator")
    return tx.open_payouts(after=after, limit=limit)
