"""A book of transfers: money moves from one account to another, and never changes in place."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbourse.errors import InvalidTransfer
from fedbourse.units import MicroCredits, credits_text

if TYPE_CHECKING:
    from collections.abc import Iterable

OUTSIDE = "outside"
"""The account that money comes in from and goes out to; it alone may stand below zero."""


@dataclass(frozen=True)
class Transfer:
    """One entry of the book."""

    id: str
    """Made by the caller: posting the same transfer twice has one effect."""
    debit: str
    credit: str
    amount: MicroCredits
    memo: str = ""

    def __post_init__(self) -> None:
        for name in ("id", "debit", "credit"):
            text = getattr(self, name)
            if not isinstance(text, str) or not text:
                raise InvalidTransfer(f"a transfer's {name} must be a name; found {text!r:.60}")
        if self.debit == self.credit:
            raise InvalidTransfer(f"a transfer needs two accounts; found {self.debit!r:.60} twice")
        if isinstance(self.amount, bool) or not isinstance(self.amount, int) or self.amount <= 0:
            raise InvalidTransfer(
                f"an amount must be a whole number of micro-credits above 0; found {self.amount!r}"
            )


class Book:
    """All transfers so far, and what they leave in each account."""

    def __init__(self, transfers: Iterable[Transfer] = ()) -> None:
        self._transfers: dict[str, Transfer] = {}
        self._balances: defaultdict[str, int] = defaultdict(int)
        for transfer in transfers:
            self.post(transfer)

    def post(self, transfer: Transfer) -> None:
        """Append a transfer; one that would overdraw its debit account is refused."""
        posted = self._transfers.get(transfer.id)
        if posted == transfer:
            return
        if posted is not None:
            raise InvalidTransfer(
                f"transfer {transfer.id!r} was posted before with other content: {posted}"
            )
        balance = self._balances[transfer.debit]
        if transfer.debit != OUTSIDE and balance < transfer.amount:
            raise InvalidTransfer(
                f"account {transfer.debit!r} holds {credits_text(balance)} credits, less than "
                f"the {credits_text(transfer.amount)} to move"
            )
        self._transfers[transfer.id] = transfer
        self._balances[transfer.debit] -= transfer.amount
        self._balances[transfer.credit] += transfer.amount

    def balance(self, account: str) -> MicroCredits:
        """Return what an account holds."""
        return MicroCredits(self._balances.get(account, 0))

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """Every transfer, in the order of posting."""
        return tuple(self._transfers.values())

    @property
    def balances(self) -> dict[str, MicroCredits]:
        """What each account holds; with the outside they sum to zero."""
        return {name: MicroCredits(held) for name, held in self._balances.items()}
