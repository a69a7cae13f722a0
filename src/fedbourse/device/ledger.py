"""The owner's ledger: what was sold, to whom, what of it is spent, and what it earned."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from fedbourse.device.deal import deal_name
from fedbourse.privacy.loss import PrivacyLoss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedbourse.device.deal import Deal, Refusal
    from fedbourse.device.deals import Deals
    from fedbourse.privacy.filter import Account, Filter


_NOTHING = {"earned_micro": 0, "held_micro": 0}


@dataclass(frozen=True)
class SpendEntry:
    """One deal in the owner's ledger."""

    deal: Deal
    budget: float
    """rho that was sold; 0 before terms are signed."""
    spent: Fraction
    """rho."""
    reserved: Fraction
    """rho that is promised and not spent."""
    delivered: int
    receipts: int
    earned_micro: int
    """What receipts say; at the end of a task with evidence, what the market says."""
    held_micro: int
    """The part of it that is held until evidence is decided on, as far as receipts say."""
    forfeited_micro: int
    """What receipts say beyond what was earned: held pay that was lost at the end."""

    @property
    def released_micro(self) -> int:
        """What was earned and is not held."""
        return self.earned_micro - self.held_micro

    @property
    def samples(self) -> int:
        """m, the records that each update of the task is the mean of."""
        return self.deal.card.samples


@dataclass(frozen=True)
class Ledger:
    """What was spent, for whom, and what was earned."""

    lifetime_cap: float
    entries: tuple[SpendEntry, ...]
    elsewhere: tuple[Account, ...]
    """What was sold outside of markets, such as on a Flower federation."""
    refusals: tuple[Refusal, ...]

    @property
    def spent(self) -> Fraction:
        """The rho that is spent, over all tasks and markets."""
        spent = (account.spent for account in self.elsewhere)
        return sum((*(entry.spent for entry in self.entries), *spent), Fraction(0))

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss over all tasks, with the m of each."""
        sold = [(entry.spent, entry.samples) for entry in self.entries]
        elsewhere = [(account.spent, account.terms.samples) for account in self.elsewhere]
        return PrivacyLoss.composed([*sold, *elsewhere])

    @property
    def samples_max(self) -> int | None:
        """The largest m of any task so far; None where there was none."""
        elsewhere = (account.terms.samples for account in self.elsewhere)
        return max((*(entry.samples for entry in self.entries), *elsewhere), default=None)

    @property
    def reserved(self) -> Fraction:
        """The rho that is promised and not spent."""
        promised = (each.committed - each.spent for each in self.elsewhere)
        return sum((*(entry.reserved for entry in self.entries), *promised), Fraction(0))

    @property
    def earned_micro(self) -> int:
        """What all receipts together say was earned."""
        return sum(entry.earned_micro for entry in self.entries)

    @property
    def held_micro(self) -> int:
        """What of that is held."""
        return sum(entry.held_micro for entry in self.entries)

    @property
    def released_micro(self) -> int:
        """What of that is not held."""
        return sum(entry.released_micro for entry in self.entries)

    @property
    def forfeited_micro(self) -> int:
        """What receipts say beyond that, and was lost."""
        return sum(entry.forfeited_micro for entry in self.entries)


def ledger_of(deals: Deals, guard: Filter) -> Ledger:
    """Return the ledger of a device's deals and its filter's accounts."""
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


def _entry(deal: Deal, deals: Deals, accounts: list[Account]) -> SpendEntry:
    """Return a deal's entry. Terms that were given up are closed accounts with nothing spent."""
    delivered = deals.delivered(deal)
    receipts = [each.receipt for each in delivered if each.receipt is not None]
    spent = sum((account.spent for account in accounts), Fraction(0))
    current = [each for each in accounts if each.terms.task == deal.account]
    receipt = max((each["receipt"] for each in receipts), key=_earned, default=_NOTHING)
    money = deal.final or receipt
    return SpendEntry(
        deal=deal,
        budget=current[0].terms.rho if current else 0.0,
        spent=spent,
        reserved=sum((account.committed for account in accounts), Fraction(0)) - spent,
        delivered=len(delivered),
        receipts=len(receipts),
        earned_micro=_earned(money),
        held_micro=int(money["held_micro"] or 0),
        forfeited_micro=max(0, _earned(receipt) - _earned(money)),
    )


def _earned(money: Mapping[str, Any]) -> int:
    return int(money["earned_micro"] or 0)
