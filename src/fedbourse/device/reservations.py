"""What one deal has reserved under the lifetime cap.

Where another owner declines, the price is discovered again and other terms are signed: each terms
have an account of their own with the filter. One of them is open at most, and one alone is ever
charged, so that however often a market settles a task, the device spends one budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbourse.errors import Refused
from fedbourse.protocol.bounds import TICKS_MAX

if TYPE_CHECKING:
    from fractions import Fraction

    from fedbourse.device.deal import Deal
    from fedbourse.privacy.filter import Account, Filter
    from fedbourse.privacy.terms import Terms


class Reservations:
    """The accounts of one deal with the device's filter."""

    def __init__(self, deal: Deal, guard: Filter) -> None:
        self._deal, self._guard = deal, guard

    def accounts(self) -> list[Account]:
        """Return the account of every terms that a budget was ever reserved for."""
        return [each for each in self._guard.accounts() if self._deal.owns(each.terms.task)]

    @property
    def spent(self) -> Fraction | int:
        """Return the privacy that is gone, in rho."""
        return sum(account.spent for account in self.accounts())

    def refuse_if_charged(self) -> None:
        """Refuse to give terms up under which a round was charged for."""
        if any(account.charged for account in self.accounts()):
            raise Refused(
                "changed-terms",
                "the market settles the task anew after training has begun; only terms under which "
                "nothing was spent can be given up",
            )

    def reserve(self, terms: Terms) -> None:
        """Reserve the budget of terms, in place of those before. Doing so twice changes nothing.

        What was reserved before is free first: killed in between, the device has reserved nothing,
        and has signed nothing either.
        """
        accounts = {account.terms.task: account for account in self.accounts()}
        same = accounts.get(terms.task)
        if same is not None and same.closed:
            raise Refused(
                "changed-terms", "these terms were signed before, and other terms took their place"
            )
        if same is None:
            self.refuse_if_charged()
            if len(accounts) >= TICKS_MAX:
                raise Refused(
                    "changed-terms", f"the market settles the task more than {TICKS_MAX} times"
                )
            self.free()
        self._guard.agree(terms)

    def free(self) -> None:
        """Free what is reserved and not spent."""
        for account in self.accounts():
            if not account.closed:
                self._guard.close(account.terms.task)
