"""The privacy filter: what a device releases, and what it refuses.

The order is always the same: **charge** durably, **draw** the noise, **store** the update, **send**
it. Killed anywhere in between, a device has charged for at least all that it ever sent:

- killed before the charge: nothing happened;
- charged, no update stored: nothing was sent, and noise may be drawn again for the same request;
- update stored: the same round request gets that update again, never fresh noise.

The rules are pure: they take an account and return the next account, or refuse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

from fedbourse.errors import InvalidInput, Refused
from fedbourse.privacy.terms import Terms
from fedbourse.units import number


@dataclass(frozen=True)
class RoundRequest:
    """What a device is asked in a round: an update for a model."""

    task: str
    terms: str
    """The digest of the signed terms, as the server has them."""
    round: int
    model: str
    """The digest of the model."""

    def __post_init__(self) -> None:
        for name in ("task", "terms", "model"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise InvalidInput(f"a round request's {name} must be text; found {value!r:.60}")
        if isinstance(self.round, bool) or not isinstance(self.round, int):
            raise InvalidInput(f"a round request's round must be whole; found {self.round!r:.60}")


@dataclass(frozen=True)
class Account:
    """A device's record of one task that it sells privacy to."""

    terms: Terms
    charged: int = 0
    """The rounds charged for, whether or not an update was sent."""
    last: RoundRequest | None = None
    """The last round request that was charged for."""
    closed: bool = False

    @property
    def spent(self) -> Fraction:
        """Return the privacy spent, exactly: rounds times what each may cost."""
        return self.charged * self.terms.exact_round_rho

    @property
    def committed(self) -> Fraction:
        """Return what counts against the cap: all of an open task, the spend of a closed one."""
        return self.spent if self.closed else self.terms.exact_rho


class SpendRecords(Protocol):
    """The accounts of a device, inside one transaction."""

    def accounts(self) -> Iterable[Account]:
        """Return every account."""

    def account(self, task: str) -> Account | None:
        """Return one task's account."""

    def put(self, account: Account) -> None:
        """Write an account, in place of the one with the same task."""

    def update(self, task: str) -> bytes | None:
        """Return the stored update for the task's last round request."""

    def put_update(self, task: str, update: bytes | None) -> None:
        """Store the update for the task's last round request; None deletes the one before."""


class SpendStorage(Protocol):
    """Durable storage of accounts."""

    def transaction(self) -> AbstractContextManager[SpendRecords]:
        """Open the books for one caller alone; commit durably at the end, or not at all."""


class Filter:
    """A device's privacy filter: no update leaves without passing it."""

    def __init__(self, store: SpendStorage, *, lifetime_cap: float) -> None:
        self._store = store
        self.lifetime_cap = number("lifetime_cap", lifetime_cap, at_least=0)

    def agree(self, terms: Terms) -> None:
        """Reserve a task's whole budget under the lifetime cap. Agreeing twice changes nothing."""
        with self._store.transaction() as books:
            account = books.account(terms.task)
            if account is None:
                books.put(reserve(terms, books.accounts(), self.lifetime_cap))
            else:
                same_terms(account, terms.digest)

    def update(
        self, round_request: RoundRequest, draw: Callable[[], bytes], *, cost: float
    ) -> bytes:
        """Charge, draw, store, and return what may be sent; ``draw`` runs at most once.

        ``cost`` is what the noise that ``draw`` adds costs in zCDP, by its own proof.
        """
        stored = self.charge(round_request, cost=cost)
        return self.keep(round_request, draw()) if stored is None else stored

    def check(self, round_request: RoundRequest, *, cost: float) -> bytes | None:
        """Refuse what ``charge`` would refuse; return the stored update where there is one."""
        with self._store.transaction() as books:
            account, charged = self._charged(books, round_request, cost)
            return books.update(round_request.task) if charged is account else None

    def charge(self, round_request: RoundRequest, *, cost: float) -> bytes | None:
        """Charge durably for a round request; return the stored update if there is one already."""
        with self._store.transaction() as books:
            account, charged = self._charged(books, round_request, cost)
            if charged is account:
                return books.update(round_request.task)
            books.put_update(round_request.task, None)
            books.put(charged)
            return None

    def _charged(
        self, books: SpendRecords, round_request: RoundRequest, cost: float
    ) -> tuple[Account, Account]:
        """Return a task's account before and after a charge."""
        account = _agreed(books, round_request.task)
        return account, charge(account, round_request, cost, books.accounts(), self.lifetime_cap)

    def keep(self, round_request: RoundRequest, update: bytes) -> bytes:
        """Store the update for the last charged round request; return what may be sent.

        Where two threads drew noise for one request, only the first stored update ever leaves.
        """
        with self._store.transaction() as books:
            account = books.account(round_request.task)
            if account is None or account.last != round_request:
                raise Refused(
                    "not-charged", f"round {round_request.round} was not charged for last"
                )
            still_open(account)
            stored = books.update(round_request.task)
            if stored is None:
                books.put_update(round_request.task, update)
            return update if stored is None else stored

    def close(self, task: str) -> None:
        """End a task: it gets no more updates, and what it did not spend is free again."""
        with self._store.transaction() as books:
            books.put(replace(_agreed(books, task), closed=True))
            books.put_update(task, None)

    def accounts(self) -> list[Account]:
        """Return every account."""
        with self._store.transaction() as books:
            return list(books.accounts())


def _agreed(books: SpendRecords, task: str) -> Account:
    account = books.account(task)
    if account is None:
        raise Refused("unknown-task", f"no terms were agreed for task {task!r}")
    return account


def _committed(accounts: Iterable[Account]) -> Fraction:
    return sum((account.committed for account in accounts), Fraction(0))


def left_of(lifetime_cap: float, accounts: Iterable[Account]) -> float:
    """Return the part of a cap that is neither spent nor reserved, rounded down."""
    left = max(Fraction(0), Fraction(lifetime_cap) - _committed(accounts))
    return math.nextafter(float(left), 0.0) if float(left) > left else float(left)


def reserve(terms: Terms, accounts: Iterable[Account], lifetime_cap: float) -> Account:
    """Return a new account, if its whole budget fits under the lifetime cap beside all others."""
    committed = _committed(accounts)
    if committed + terms.exact_rho > Fraction(lifetime_cap):
        raise Refused(
            "over-cap",
            f"a budget of {terms.rho:.6g} does not fit under the lifetime cap of {lifetime_cap:g}, "
            f"of which {float(committed):.6g} is spent or reserved",
        )
    return Account(terms)


def charge(
    account: Account,
    round_request: RoundRequest,
    cost: float,
    accounts: Iterable[Account],
    lifetime_cap: float,
) -> Account:
    """Return the account after a charge; the same one where this request was charged before."""
    terms = account.terms
    same_terms(account, round_request.terms)
    still_open(account)
    if not 0 <= round_request.round < terms.rounds:
        raise Refused(
            "beyond-rounds",
            f"round {round_request.round} lies outside the {terms.rounds} rounds agreed, "
            f"0 to {terms.rounds - 1}",
        )
    last = account.last
    if last is not None and round_request.round == last.round:
        if round_request.model != last.model:
            raise Refused(
                "other-model",
                f"round {round_request.round} was requested for another model before; "
                "a second update would cost privacy again",
            )
        return account
    if last is not None and round_request.round < last.round:
        raise Refused(
            "past-round", f"round {round_request.round} is over; the last was round {last.round}"
        )
    if not cost <= terms.round_rho or account.charged >= terms.rounds:  # NaN is refused too
        raise Refused(
            "over-budget",
            f"the update would cost {cost:.6g} after {float(account.spent):.6g} spent; the budget "
            f"is {terms.rho:.6g}, {terms.round_rho:.6g} a round",
        )
    spent = sum((other.spent for other in accounts), Fraction(0))
    if spent + terms.exact_round_rho > Fraction(lifetime_cap):
        raise Refused(
            "over-cap",
            f"the update would cost {terms.round_rho:.6g}, and {float(spent):.6g} of the lifetime "
            f"cap of {lifetime_cap:g} is spent",
        )
    return replace(account, charged=account.charged + 1, last=round_request)


def same_terms(account: Account, digest: str) -> None:
    """Refuse terms other than those that were agreed."""
    if digest != account.terms.digest:
        raise Refused(
            "changed-terms",
            f"the terms of task {account.terms.task!r} are not those that were agreed: "
            f"{digest[:12]}... instead of {account.terms.digest[:12]}...",
        )


def still_open(account: Account) -> None:
    """Refuse a task that was closed."""
    if account.closed:
        raise Refused("closed", f"task {account.terms.task!r} has ended")
