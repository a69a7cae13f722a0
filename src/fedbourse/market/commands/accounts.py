"""Money that comes in, which a payment adapter vouches for, and who may see an account."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbourse.errors import FedbourseError, InvalidInput
from fedbourse.ledger import OUTSIDE
from fedbourse.market.parties import party
from fedbourse.market.service import FUND

if TYPE_CHECKING:
    from fedbourse.market.parties import Caller, Scope
    from fedbourse.market.ports import Payments, Transaction
    from fedbourse.market.service import Market
    from fedbourse.units import MicroCredits

_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
AMOUNT_MICRO_MAX = 2**53 - 1
MOVERS: tuple[Scope, ...] = ("buyer", "owner", "operator")
"""An auditor's token changes nothing, whosever it is."""


@dataclass(frozen=True)
class Received:
    """Money that came in from outside, as the payment adapter vouches for it."""

    reference: str
    account: str
    amount: MicroCredits


@dataclass(frozen=True)
class Deposit:
    """Money that was credited; once, however often it is asked for."""

    party: str
    amount_micro: int
    reference: str
    claimed_before: bool
    """Whether another request had claimed it already; then nothing was added by this one."""
    claimed_ms: int
    """When it was claimed."""
    balance_micro: int
    """What the account holds with it."""


def look_up(caller: Caller, payments: Payments, reference: str) -> Received | FedbourseError:
    """Ask the payment adapter what came in with a reference; no transaction may be open.

    Its refusal is returned for ``deposit`` to raise, so that a request that was carried out before
    gets the same response, whatever the adapter says by now.
    """
    caller.require(*MOVERS)
    if not isinstance(reference, str) or not _REFERENCE.fullmatch(reference):
        raise InvalidInput(
            "a reference has up to 100 letters, digits, dots, colons and dashes; "
            f"found {reference!r:.80}"
        )
    try:
        account, amount = payments.received(reference)
    except FedbourseError as refusal:
        return refusal
    return Received(reference, account, amount)


def deposit(
    market: Market, tx: Transaction, caller: Caller, received: Received | FedbourseError
) -> Deposit:
    """Credit money that came in, once for each reference; say when that was."""
    caller.require(*MOVERS)
    if isinstance(received, FedbourseError):
        raise received
    if caller.party != received.account:
        caller.require("operator")
    id, memo = f"deposit/{received.reference}", f"deposit {received.reference}"
    is_new = market.pay(tx, id, (OUTSIDE, party(received.account)), received.amount, memo)
    return Deposit(
        party=received.account,
        amount_micro=received.amount,
        reference=received.reference,
        claimed_before=not is_new,
        claimed_ms=tx.entry(id).at_ms,
        balance_micro=tx.balance(received.account),
    )


def balance(tx: Transaction, caller: Caller) -> MicroCredits:
    """Return what the caller's own account holds."""
    return tx.balance(caller.party)


def may_see(caller: Caller, account: str) -> None:
    """Refuse to show an account to anybody but its party, the operator and auditors.

    The fund is everybody's to see: what went into it is in the tasks' public logs.
    """
    if account not in (caller.party, FUND):
        caller.require("operator", "auditor")
