"""What the market needs of a transaction to move money: the books, and pay-outs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from fedbourse.ledger import Transfer
    from fedbourse.market.commands.payouts import Payout, PayoutStep
    from fedbourse.market.ports import Lock
    from fedbourse.market.records import Entry, State
    from fedbourse.units import MicroCredits


class Books(Protocol):
    """Money. Transfers are only ever added."""

    def post(self, transfers: Sequence[Transfer], *, at_ms: int) -> int:
        """Move money, all or nothing; return how many of the transfers are new.

        A transfer that was posted before with the same content does nothing; with other content,
        or where an account would be overdrawn, it raises ``InvalidTransfer``.
        """

    def entry(self, transfer: str) -> Entry:
        """Return a transfer by its id, or raise ``NotFound``."""

    def balance(self, account: str) -> MicroCredits:
        """Return what an account holds; 0 where there is none."""

    def balances_of(self, accounts: Collection[str]) -> dict[str, MicroCredits]:
        """Return what these accounts hold; those that do not exist are left out."""

    def balances(self, *, after: str = "", limit: int) -> list[tuple[str, MicroCredits]]:
        """Return accounts and what they hold, by name."""

    def unbalanced(self) -> list[str]:
        """Return accounts whose balance is not what their transfers leave."""

    def entries(self, *, account: str | None = None, after: int = 0, limit: int) -> list[Entry]:
        """Return transfers in the order of posting, of one account or of all."""

    def last_entries(self, account: str, *, skip: int, limit: int) -> tuple[list[Entry], int]:
        """Return an account's transfers, newest first, and how much those skipped have moved."""

    def count_entries(self, account: str, *, at_most: int | None = None) -> int:
        """Return how many transfers an account has had, counting no further than ``at_most``."""

    def last_transfer(self) -> int:
        """Return the number of the newest transfer; 0 where there is none."""

    def held_for(self, buyer: str, states: Collection[State]) -> MicroCredits:
        """Return what is in escrow for a buyer's tasks in these states."""

    def moved_for(self, buyer: str, ends: Collection[str]) -> dict[str, MicroCredits]:
        """Return the sums of transfers of all of a buyer's tasks, by the end of their ids."""

    def moved(self, transfers: Collection[str]) -> dict[str, MicroCredits]:
        """Return the amounts of those of these transfers that were posted, by their ids."""


class Payouts(Protocol):
    """Money on its way out. The states that a pay-out has had are only ever added."""

    def add_payout(self, payout: Payout) -> None:
        """Store a new pay-out; a second one with its id raises ``Conflict``."""

    def payout(self, payout: str, *, lock: Lock = "none") -> Payout:
        """Return a pay-out, or raise ``NotFound``."""

    def save_payout(self, payout: Payout) -> None:
        """Store how far a pay-out has come; whose, how much, where and when never change."""

    def add_payout_step(self, step: PayoutStep) -> None:
        """Store a state of a pay-out; a second one with its number raises ``Conflict``."""

    def payout_steps(self, payout: str) -> list[PayoutStep]:
        """Return the states that a pay-out has had, in order."""

    def due_payouts(self, *, now_ms: int, limit: int) -> list[Payout]:
        """Return those to be handed over by now, by id; none whose money has not left its party."""

    def hurry_payouts(self, *, now_ms: int) -> None:
        """Let those be due whose last attempt has not ended."""

    def payouts(self, party: str, *, before: str | None = None, limit: int) -> list[Payout]:
        """Return a party's pay-outs, newest first: those made before one."""

    def open_payouts(self, *, after: str = "", limit: int) -> list[Payout]:
        """Return those that are neither confirmed nor returned, by id."""

    def count_payouts(self, party: str, *, after: str) -> int:
        """Return how many pay-outs of a party have an id after this one."""

    def leaving(self, party: str) -> MicroCredits:
        """Return the sum of a party's pay-outs that are neither confirmed nor returned."""
