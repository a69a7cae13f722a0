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
    from fedbourse.market.ports import Payments, Unit
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
    """Money that was credited."""

    received: Received
    claimed_ms: int
    claimed_before: bool
    """Whether it had been credited already, so that nothing was added this time."""
    balance: MicroCredits
    """What the account holds with it."""


def look_up(caller: Caller, payments: Payments, reference: str) -> Received | FedbourseError:
    """Ask the payment adapter what came in with a reference; no transaction may be open.

    Its refusal is returned for ``deposit`` to raise, so that a request that was carried out before
    is answered as it was then, whatever the adapter says by now.
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
    market: Market, unit: Unit, caller: Caller, received: Received | FedbourseError
) -> Deposit:
    """Credit money that came in, once for each reference; say when that was."""
    caller.require(*MOVERS)
    if isinstance(received, FedbourseError):
        raise received
    if caller.party != received.account:
        caller.require("operator")
    id, memo = f"deposit/{received.reference}", f"deposit {received.reference}"
    is_new = market.pay(unit, id, (OUTSIDE, party(received.account)), received.amount, memo)
    return Deposit(
        received,
        claimed_ms=unit.entry(id).at_ms,
        claimed_before=not is_new,
        balance=unit.balance(received.account),
    )


def balance(unit: Unit, caller: Caller) -> MicroCredits:
    """Return what the caller's own account holds."""
    return unit.balance(caller.party)


def may_see(caller: Caller, account: str) -> None:
    """Refuse to show an account to anybody but its party, the operator and auditors.

    The fund is everybody's to see: what went into it is in the tasks' public logs.
    """
    if account not in (caller.party, FUND):
        caller.require("operator", "auditor")
