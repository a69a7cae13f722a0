"""A whole market in one process: the commands of a served one, over a temporary SQLite file.

Time is simulated: it passes only where the market waits for somebody who does not act, and then
jumps to the deadline.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedbourse.market.commands import access, accounts, scheduler
from fedbourse.market.parties import Caller
from fedbourse.market.service import Market
from fedbourse.payments.manual import RECEIVED, ManualPayments
from fedbourse.protocol.keys import SigningKey, key_id
from fedbourse.storage import SqlStore
from fedbourse.units import credits_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fedbourse.market.records import Task
    from fedbourse.units import MicroCredits

_OPERATOR = Caller("operator:main", frozenset({"operator"}))
_START_MS = 1_767_225_600_000  # the first moment of 2026


@dataclass(frozen=True)
class EmbeddedDevice:
    """An owner's device as the market sees it: a caller with a key."""

    caller: Caller
    key: SigningKey


class EmbeddedMarket:
    """A market, its books and its simulated time."""

    def __init__(self, store: SqlStore, payments: Path) -> None:
        self.store = store
        self.now_ms = _START_MS
        self.market = Market(SigningKey.generate(), now_ms=lambda: self.now_ms)
        self._payments, self._folder = ManualPayments(payments), payments

    def deposit(self, buyer: Caller, amount: MicroCredits) -> None:
        """Let money of a buyer arrive, and credit it to its account."""
        payment = {
            "reference": f"deposit-{amount}",
            "party": buyer.party,
            "credits": credits_text(amount),
        }
        with (self._folder / RECEIVED).open("a", encoding="utf-8") as file:
            file.write(json.dumps(payment) + "\n")
        received = accounts.look_up(buyer, self._payments, payment["reference"])
        with self.store.begin() as tx:
            accounts.deposit(self.market, tx, buyer, received)

    def enrol(self, owners: Iterable[str]) -> list[EmbeddedDevice]:
        """Enrol a device of each owner, with a key of its own."""
        devices = []
        with self.store.begin() as tx:
            for owner in owners:
                _, id = access.issue_enrolment(self.market, tx, _OPERATOR, owner=owner)
                key = SigningKey.generate()
                device = access.enrol(
                    self.market,
                    tx,
                    token=access.enrolment_secret(self.market, id),
                    device=key_id(key.public),
                    public_key=key.public,
                )
                devices.append(EmbeddedDevice(Caller(owner, frozenset({"owner"}), device.id), key))
        return devices

    def task(self, task_id: str) -> Task:
        """Return a task in its present state."""
        with self.store.read() as tx:
            return tx.task(task_id)

    def advance(self, task_id: str) -> Task:
        """Let the market move a task on, at once or at the deadline of those it waits for."""
        moved = scheduler.advance_one(self.market, self.store, task_id)
        if not moved:
            task = self.task(task_id)
            ends = [end for end in (task.tick_ends_ms, task.deadline_ms) if end is not None]
            self.now_ms = max(self.now_ms, min(ends))
            moved = scheduler.advance_one(self.market, self.store, task_id)
        assert moved, f"the market leaves task {task_id} as it is when its deadline comes"
        return self.task(task_id)


@contextmanager
def embedded_market() -> Iterator[EmbeddedMarket]:
    """Open a market that is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="fedbourse-") as name:
        folder = Path(name)
        with SqlStore(f"sqlite:///{folder / 'market.db'}") as store:
            yield EmbeddedMarket(store, folder / "payments")
