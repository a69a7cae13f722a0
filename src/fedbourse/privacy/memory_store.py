"""A store that lives and dies with its process: for simulated devices."""

from __future__ import annotations

from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fedbourse.privacy.filter import Account, Books


class MemoryStore:
    """Accounts in a dictionary; a transaction that fails leaves them as they were."""

    def __init__(self) -> None:
        """Start without an account."""
        self._lock = RLock()
        self._accounts: dict[str, Account] = {}
        self._answers: dict[str, bytes] = {}

    @contextmanager
    def transaction(self) -> Iterator[Books]:
        """Open the books for one thread alone."""
        with self._lock:
            before = self._accounts.copy(), self._answers.copy()
            try:
                yield self
            except BaseException:
                self._accounts, self._answers = before
                raise

    def accounts(self) -> Iterable[Account]:
        """Return every account."""
        return self._accounts.values()

    def account(self, task: str) -> Account | None:
        """Return one task's account."""
        return self._accounts.get(task)

    def put(self, account: Account) -> None:
        """Write an account."""
        self._accounts[account.terms.task] = account

    def answer(self, task: str) -> bytes | None:
        """Return the answer stored for the task's last question."""
        return self._answers.get(task)

    def put_answer(self, task: str, answer: bytes | None) -> None:
        """Store an answer, or forget the one before."""
        if answer is None:
            self._answers.pop(task, None)
        else:
            self._answers[task] = answer
