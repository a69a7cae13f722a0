"""The owner's ledger: what was sold, to whom, what is gone of it, and what it brought."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from fedbourse.agent.deals import deal_name
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
    by_deal: defaultdict[str, list[Account]] = defaultdict(list)
    for account in guard.accounts():
        by_deal[deal_name(account.terms.task)].append(account)
    entries = tuple(_entry(deal, deals, by_deal.pop(deal.name, [])) for deal in deals.deals())
    return Ledger(
        lifetime_cap=guard.lifetime_cap,
        entries=entries,
        elsewhere=tuple(account for accounts in by_deal.values() for account in accounts),
        refusals=tuple(deals.refusals()),
    )


def _entry(deal: Deal, deals: Deals, accounts: list[Account]) -> Entry:
    """Return a deal's entry. Terms that were given up are closed accounts with nothing spent."""
    answered = deals.answered(deal)
    receipts = [each.receipt for each in answered if each.receipt is not None]
    spent = sum((account.spent for account in accounts), Fraction(0))
    current = [each for each in accounts if each.terms.task == deal.account]
    return Entry(
        deal=deal,
        budget=current[0].terms.rho if current else 0.0,
        spent=spent,
        reserved=sum((account.committed for account in accounts), Fraction(0)) - spent,
        answered=len(answered),
        receipts=len(receipts),
        earned_micro=max((each["receipt"]["earned_micro"] for each in receipts), default=0),
    )
