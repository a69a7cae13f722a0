"""The filter: what a device lets out, and what it refuses.

The order is always the same: **charge** durably, **draw** the noise, **store** the answer, **send**
it. Killed anywhere in between, a device has charged for at least all that it ever sent:

- killed before the charge: nothing happened;
- charged, no answer stored: nothing was sent, and the same question may be drawn for again;
- answer stored: the same question gets that answer again, never fresh noise.

The rules are pure: they take an account and return the account that follows, or refuse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from fedbourse.errors import InvalidInput, Refused
from fedbourse.units import number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from fedbourse.privacy.terms import Terms


@dataclass(frozen=True)
class Question:
    """What a server asks: a round of a task, about a model."""

    task: str
    terms: str
    """The digest of the terms that the server thinks were signed."""
    round: int
    model: str
    """The digest of the model that the question is about."""

    def __post_init__(self) -> None:
        """Refuse what is no question: it comes from somebody who is not trusted."""
        for name in ("task", "terms", "model"):
            if not isinstance(getattr(self, name), str):
                raise InvalidInput(
                    f"a question's {name} must be text; found {getattr(self, name)!r:.60}"
                )
        if isinstance(self.round, bool) or not isinstance(self.round, int):
            raise InvalidInput(f"a question's round must be whole; found {self.round!r:.60}")


@dataclass(frozen=True)
class Account:
    """What a device knows of one task that it sold privacy to."""

    terms: Terms
    charged: int = 0
    """The rounds paid for in privacy, answered or not."""
    last: Question | None = None
    """The last question charged for."""
    closed: bool = False

    @property
    def spent(self) -> Fraction:
        """Return the privacy that is gone, exactly: rounds times what each may cost."""
        return self.charged * self.terms.exact_round_rho

    @property
    def committed(self) -> Fraction:
        """Return what counts against the cap: all of an open task, the spend of a closed one."""
        return self.spent if self.closed else self.terms.exact_rho


class Books(Protocol):
    """The accounts of a device, inside one transaction."""

    def accounts(self) -> Iterable[Account]:
        """Return every account."""

    def account(self, task: str) -> Account | None:
        """Return one task's account."""

    def put(self, account: Account) -> None:
        """Write an account, in the place of the one with the same task."""

    def answer(self, task: str) -> bytes | None:
        """Return the answer stored for the task's last question."""

    def put_answer(self, task: str, answer: bytes | None) -> None:
        """Store the answer to the task's last question; None forgets the one before."""


class Store(Protocol):
    """Where accounts are kept."""

    def transaction(self) -> AbstractContextManager[Books]:
        """Open the books for one caller alone: at its end all is durable, if it fails nothing."""


class Filter:
    """A device's guard: every answer passes through it, or does not leave."""

    def __init__(self, store: Store, *, lifetime_cap: float) -> None:
        """Guard a store under a cap on all that may ever be spent, in zCDP."""
        self._store = store
        self.lifetime_cap = number("lifetime_cap", lifetime_cap, at_least=0)

    def agree(self, terms: Terms) -> None:
        """Reserve a task's whole budget under the lifetime cap. Agreeing twice changes nothing."""
        with self._store.transaction() as books:
            known = books.account(terms.task)
            if known is None:
                books.put(reserve(terms, books.accounts(), self.lifetime_cap))
            else:
                same_terms(known, terms.digest)

    def answer(self, question: Question, draw: Callable[[], bytes], *, cost: float) -> bytes:
        """Charge, draw, store, and return what may be sent; ``draw`` runs at most once.

        ``cost`` is what the noise that ``draw`` adds costs in zCDP, by its own proof.
        """
        kept = self.charge(question, cost=cost)
        return self.keep(question, draw()) if kept is None else kept

    def check(self, question: Question, *, cost: float) -> bytes | None:
        """Refuse what ``charge`` would refuse; return the stored answer where there is one."""
        with self._store.transaction() as books:
            account, charged = self._charged(books, question, cost)
            return books.answer(question.task) if charged is account else None

    def charge(self, question: Question, *, cost: float) -> bytes | None:
        """Charge durably for a question; return the stored answer where there is one already."""
        with self._store.transaction() as books:
            account, charged = self._charged(books, question, cost)
            if charged is account:
                return books.answer(question.task)
            books.put_answer(question.task, None)
            books.put(charged)
            return None

    def _charged(self, books: Books, question: Question, cost: float) -> tuple[Account, Account]:
        """Return a task's account before and after a charge."""
        account = books.account(question.task)
        if account is None:
            raise Refused("unknown-task", f"no terms were agreed for task {question.task!r}")
        return account, charge(account, question, cost, books.accounts(), self.lifetime_cap)

    def keep(self, question: Question, answer: bytes) -> bytes:
        """Store the answer to the question that was charged for last; return what may be sent.

        Where two threads drew for one question, the first answer stored is the only one to leave.
        """
        with self._store.transaction() as books:
            account = books.account(question.task)
            if account is None or account.last != question:
                raise Refused("not-charged", f"round {question.round} was not charged for last")
            still_open(account)
            kept = books.answer(question.task)
            if kept is None:
                books.put_answer(question.task, answer)
            return answer if kept is None else kept

    def close(self, task: str) -> None:
        """End a task: it gets no more answers, and what it did not spend is free again."""
        with self._store.transaction() as books:
            account = books.account(task)
            if account is None:
                raise Refused("unknown-task", f"no terms were agreed for task {task!r}")
            books.put(replace(account, closed=True))
            books.put_answer(task, None)

    def accounts(self) -> list[Account]:
        """Return what was sold to whom, and how much of it is spent."""
        with self._store.transaction() as books:
            return list(books.accounts())


def left_of(lifetime_cap: float, accounts: Iterable[Account]) -> float:
    """Return what is neither spent nor promised of a cap, rounded down so that it does fit."""
    committed = sum((each.committed for each in accounts), Fraction(0))
    left = max(Fraction(0), Fraction(lifetime_cap) - committed)
    return math.nextafter(float(left), 0.0) if float(left) > left else float(left)


def reserve(terms: Terms, accounts: Iterable[Account], lifetime_cap: float) -> Account:
    """Return a new account, if its whole budget fits under the lifetime cap beside all others."""
    committed = sum((account.committed for account in accounts), Fraction(0))
    if committed + terms.exact_rho > Fraction(lifetime_cap):
        raise Refused(
            "over-cap",
            f"a budget of {terms.rho:.6g} does not fit under the lifetime cap of {lifetime_cap:g}, "
            f"of which {float(committed):.6g} is spent or reserved",
        )
    return Account(terms)


def charge(
    account: Account,
    question: Question,
    cost: float,
    accounts: Iterable[Account],
    lifetime_cap: float,
) -> Account:
    """Return the account after a charge; the same one where this question was charged before."""
    terms = account.terms
    same_terms(account, question.terms)
    still_open(account)
    if not 0 <= question.round < terms.rounds:
        raise Refused(
            "beyond-rounds",
            f"round {question.round} lies outside the {terms.rounds} rounds agreed, "
            f"0 to {terms.rounds - 1}",
        )
    last = account.last
    if last is not None and question.round == last.round:
        if question.model != last.model:
            raise Refused(
                "other-model",
                f"round {question.round} was asked about another model before; "
                "a second answer would cost privacy again",
            )
        return account
    if last is not None and question.round < last.round:
        raise Refused(
            "past-round", f"round {question.round} is over; the last was round {last.round}"
        )
    if not cost <= terms.round_rho or account.charged >= terms.rounds:  # NaN is refused too
        raise Refused(
            "over-budget",
            f"the answer would cost {cost:.6g} after {float(account.spent):.6g} spent; the budget "
            f"is {terms.rho:.6g}, {terms.round_rho:.6g} a round",
        )
    spent = sum((other.spent for other in accounts), Fraction(0))
    if spent + terms.exact_round_rho > Fraction(lifetime_cap):
        raise Refused(
            "over-cap",
            f"the answer would cost {terms.round_rho:.6g}, and {float(spent):.6g} of the lifetime "
            f"cap of {lifetime_cap:g} is spent",
        )
    return replace(account, charged=account.charged + 1, last=question)


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
