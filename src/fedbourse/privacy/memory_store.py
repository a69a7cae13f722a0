"""A store in memory, for simulated devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import RLock

from fedbourse.privacy.filter import Account, SpendRecords


class MemoryStore:
    """Accounts in a dictionary; a transaction that fails leaves them as they were."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._accounts: dict[str, Account] = {}
        self._updates: dict[str, bytes] = {}

    @contextmanager
    def transaction(self) -> Iterator[SpendRecords]:
        """Open the books for one thread alone."""
        with self._lock:
            before = self._accounts.copy(), self._updates.copy()
            try:
                yield self
            except BaseException:
                self._accounts, self._updates = before
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

    def update(self, task: str) -> bytes | None:
        """Return the stored update for the task's last round request."""
        return self._updates.get(task)

    def put_update(self, task: str, update: bytes | None) -> None:
        """Store an update, or delete the one before."""
        if update is None:
            self._updates.pop(task, None)
        else:
            self._updates[task] = update
