"""The owner's ledger: what was sold, to whom, what is gone of it, and what it brought."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from fedbourse.privacy.loss import PrivacyLoss

if TYPE_CHECKING:
    from fedbourse.agent.deals import Deal, Deals, Refusal
    from fedbourse.privacy.filter import Account, Filter


@dataclass(frozen=True)
class Entry:
    """One deal in the owner's ledger: what it sold, what it lost, what it earned."""

    deal: Deal
    budget: float
    """rho that was sold; 0 before terms are signed."""
    spent: Fraction
    """rho that is gone."""
    reserved: Fraction
    """rho that may still be asked for."""
    answered: int
    receipts: int
    earned_micro: int

    @property
    def samples(self) -> int:
        """Return m, the records that each answer of the task is the mean of."""
        return self.deal.card.samples


@dataclass(frozen=True)
class Ledger:
    """What was spent, for whom, and what was earned."""

    lifetime_cap: float
    entries: tuple[Entry, ...]
    elsewhere: tuple[Account, ...]
    """What was sold outside of markets, such as on a Flower federation."""
    refusals: tuple[Refusal, ...]

    @property
    def spent(self) -> Fraction:
        """Return the rho that is gone, over all tasks and markets."""
        found: tuple[Entry | Account, ...] = (*self.entries, *self.elsewhere)
        return sum((each.spent for each in found), Fraction(0))

    @property
    def loss(self) -> PrivacyLoss:
        """Return what is gone as people read it, over all tasks with the m of each."""
        sold = [(entry.spent, entry.samples) for entry in self.entries]
        elsewhere = [(account.spent, account.terms.samples) for account in self.elsewhere]
        return PrivacyLoss.composed([*sold, *elsewhere])

    @property
    def samples_max(self) -> int | None:
        """Return the largest m of any task so far; None where there was none."""
        elsewhere = (account.terms.samples for account in self.elsewhere)
        return max((*(entry.samples for entry in self.entries), *elsewhere), default=None)

    @property
    def reserved(self) -> Fraction:
        """Return the rho that is promised and not spent."""
        promised = (each.committed - each.spent for each in self.elsewhere)
        return sum((*(entry.reserved for entry in self.entries), *promised), Fraction(0))

    @property
    def earned_micro(self) -> int:
        """Return what all receipts together say was earned."""
        return sum(entry.earned_micro for entry in self.entries)


def ledger_of(deals: Deals, guard: Filter) -> Ledger:
    """Return what a device's deals and its filter's accounts say together."""
    accounts = {account.terms.task: account for account in guard.accounts()}
    known = deals.deals()
    names = {deal.name for deal in known}
    return Ledger(
        lifetime_cap=guard.lifetime_cap,
        entries=tuple(_entry(deal, deals, accounts.get(deal.name)) for deal in known),
        elsewhere=tuple(each for task, each in accounts.items() if task not in names),
        refusals=tuple(deals.refusals()),
    )


def _entry(deal: Deal, deals: Deals, account: Account | None) -> Entry:
    answered = deals.answered(deal)
    receipts = [each.receipt for each in answered if each.receipt is not None]
    spent = account.spent if account else Fraction(0)
    return Entry(
        deal=deal,
        budget=account.terms.rho if account else 0.0,
        spent=spent,
        reserved=account.committed - spent if account else Fraction(0),
        answered=len(answered),
        receipts=len(receipts),
        earned_micro=max((each["receipt"]["earned_micro"] for each in receipts), default=0),
    )
