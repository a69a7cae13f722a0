"""What the service answers about accounts, tokens and devices."""

from __future__ import annotations

from typing import Any

from fedbourse.market.parties import Scope  # noqa: TC001 - pydantic reads them
from fedbourse.market.payouts import PayoutState  # noqa: TC001 - as above
from fedbourse.web.bodies import KEY, MS, SIGNATURE, Body, example

_ENTRY: dict[str, Any] = {
    "sequence": 7,
    "id": "deposit/bank-0017",
    "source": "outside",
    "target": "buyer:acme",
    "amount": 12_500_000,
    "memo": "deposit bank-0017",
    "at_ms": MS,
}
_PAYOUT: dict[str, Any] = {
    "id": "01a3185c50005b4a3f2e9e8b",
    "party": "buyer:acme",
    "amount_micro": 12_500_000,
    "destination": "IBAN DE02 1203 0000 0000 2020 51",
    "at_ms": MS,
    "state": "sent",
    "changed_ms": MS + 250,
    "note": "",
    "attempts": 1,
}
_TOKEN: dict[str, Any] = {
    "id": "01a3185c50000a1b2c3d",
    "party": "buyer:acme",
    "scopes": ["buyer"],
    "created_ms": MS,
    "expires_ms": None,
    "revoked_ms": None,
}


class Balance(Body):
    """What an account holds."""

    model_config = example(party="buyer:acme", balance_micro=12_500_000)
    party: str
    balance_micro: int


class AccountDocument(Balance):
    """What an account holds, and what is on its way out of it."""

    model_config = example(party="buyer:acme", balance_micro=12_500_000, leaving_micro=2_000_000)
    leaving_micro: int
    """Its pay-outs that are neither confirmed nor returned; the balance is without them."""


class BalancePage(Body):
    """Accounts by name."""

    model_config = example(accounts=[{"party": "buyer:acme", "balance_micro": 0}], next=None)
    accounts: list[Balance]
    next: str | None
    """``after`` of the next page."""


class EntryDocument(Body):
    """A transfer as the books hold it."""

    model_config = example(**_ENTRY)
    sequence: int
    id: str
    source: str
    target: str
    amount: int
    memo: str
    at_ms: int


class EntryPage(Body):
    """Transfers in the order of posting."""

    model_config = example(entries=[_ENTRY], next=None)
    entries: list[EntryDocument]
    next: int | None
    """``after`` of the next page."""


class DepositDone(Body):
    """Money that was credited; once, however often it is asked for."""

    model_config = example(
        party="buyer:acme",
        amount_micro=12_500_000,
        reference="bank-0017",
        claimed_before=False,
        claimed_ms=MS,
        balance_micro=12_500_000,
    )
    party: str
    amount_micro: int
    reference: str
    claimed_before: bool
    """Whether another request had claimed it already; then nothing was added by this one."""
    claimed_ms: int
    """When it was claimed."""
    balance_micro: int


class WithdrawalDone(Body):
    """A pay-out that was requested."""

    model_config = example(
        id=_PAYOUT["id"],
        party="buyer:acme",
        amount_micro=12_500_000,
        destination=_PAYOUT["destination"],
        state="requested",
        balance_micro=0,
    )
    id: str
    party: str
    amount_micro: int
    destination: str
    state: PayoutState
    balance_micro: int


class PayoutDocument(Body):
    """A pay-out, and where it is.

    requested: not handed over yet; sent: the market's bank has it; confirmed: it has arrived;
    failed: the bank refused it, and it is tried again; returned: its money is back.
    """

    model_config = example(**_PAYOUT)
    id: str
    party: str
    amount_micro: int
    destination: str
    at_ms: int
    """When it was requested."""
    state: PayoutState
    changed_ms: int
    """Since when it is in this state."""
    note: str
    """Why it failed, or was returned."""
    attempts: int
    """How often the market began to hand it over."""


class PayoutPage(Body):
    """Pay-outs, in the order that the route says."""

    model_config = example(payouts=[_PAYOUT], next=None)
    payouts: list[PayoutDocument]
    next: str | None
    """``after`` or ``before`` of the next page."""


class TokenMade(Body):
    """A token; it is shown this once."""

    model_config = example(
        id=_TOKEN["id"],
        token="fbt_" + "x" * 43,
        party="buyer:acme",
        scopes=["buyer"],
        expires_ms=None,
    )
    id: str
    token: str
    party: str
    scopes: list[Scope]
    expires_ms: int | None


class TokenDocument(Body):
    """A token as the market keeps it, but its hash."""

    model_config = example(**_TOKEN)
    id: str
    party: str
    scopes: list[Scope]
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None


class TokenPage(Body):
    """Tokens by id."""

    model_config = example(tokens=[_TOKEN], next=None)
    tokens: list[TokenDocument]
    next: str | None
    """``after`` of the next page."""


class TokenEnded(Body):
    """A token that is accepted no longer."""

    model_config = example(id=_TOKEN["id"], revoked_ms=MS)
    id: str
    revoked_ms: int


class EnrolmentTokenMade(Body):
    """A one-time token; it is shown this once."""

    model_config = example(
        id="5e884898da28047151d0e56f",
        token="fbe_" + "x" * 43,
        owner="owner:ann",
        expires_ms=MS + 86_400_000,
    )
    id: str
    token: str
    owner: str
    expires_ms: int


class Enrolled(Body):
    """A device that was taken in."""

    model_config = example(
        device="21fe31dfa154a261", owner="owner:ann", market_public_key=KEY, signature=SIGNATURE
    )
    device: str
    owner: str
    market_public_key: str
    """The key that the market signs terms and receipts with; pin it."""
    signature: str
    """The proof that the market holds this key: its signature of the message of kind enrolment,
    with device, owner and the host that the request was sent to."""
