"""Owners and their devices in one process, who deal with an embedded market as real ones do.

A device replies to a tick by its bidding strategy, signs what its filter can reserve, and counts
what it spends. All devices act in one transaction, and their updates are computed together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.device import BiddingStrategy
from fedbourse.encoding.canonical import canonical
from fedbourse.errors import Refused
from fedbourse.learning.engines import LocalEngine
from fedbourse.market.commands.owner import decide, offered_terms, register_interest, submit_plan
from fedbourse.market.updates import accept_update
from fedbourse.privacy.filter import Filter, left_of
from fedbourse.privacy.memory_store import MemoryStore
from fedbourse.units import MICRO_CREDITS_PER_CREDIT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fedbourse.embedded.market import EmbeddedMarket
    from fedbourse.game.columns import BoolArray, FloatArray, IntArray
    from fedbourse.learning.models import Model
    from fedbourse.learning.partition import Federation
    from fedbourse.market.records import Allocation, Task
    from fedbourse.privacy.noise import Noise
    from fedbourse.privacy.terms import Terms


@dataclass(frozen=True, eq=False)
class SimulatedOwners:
    """The owners who are interested, and what each keeps to itself."""

    values: FloatArray
    lifetime_caps: FloatArray
    records: Callable[[IntArray], Federation]
    """The records of these owners, read only when training starts."""
    noise: Callable[[Sequence[Terms]], Noise]
    available: Callable[[int, int], BoolArray] | None = None
    """Who of those who train is there in a round; see ``LocalEngine``."""
    without_data: BoolArray | None = None
    """Who of all owners has no data, and sends noise alone."""


class SimulatedDevices:
    """One device for each owner, enrolled at an embedded market."""

    def __init__(self, embedded: EmbeddedMarket, model: Model, owners: SimulatedOwners) -> None:
        self._embedded, self._model, self._owners = embedded, model, owners
        self._engine: LocalEngine | None = None
        self._signed: list[int] = []
        self._remaining: BoolArray | None = None
        self._caps: list[float] = []
        self._enrolled = embedded.enrol(f"owner:{i}" for i in range(len(owners.values)))
        self.filters = [
            Filter(MemoryStore(), lifetime_cap=cap) for cap in owners.lifetime_caps.tolist()
        ]
        """What each device has spent, and may still."""
        self.declined: list[str] = []
        """Why devices whose owners were chosen did not sign."""

    def __len__(self) -> int:
        return len(self._enrolled)

    def register(self, task: Task) -> None:
        """Register every owner's interest, without its value."""
        self._caps = [
            BiddingStrategy().cap(task.card, left=left_of(guard.lifetime_cap, guard.accounts()))
            for guard in self.filters
        ]
        with self._embedded.store.begin() as tx:
            for device in self._enrolled:
                register_interest(
                    self._embedded.market,
                    tx,
                    device.caller,
                    task.id,
                    value=None,
                    previous=task.card.digest,
                )

    def reply(self, task: Task) -> None:
        """Reply to the total of a tick, each with the budget that is best for its owner."""
        assert task.reward is not None
        assert task.total_budget is not None
        reward = task.reward / MICRO_CREDITS_PER_CREDIT
        devices = zip(self._enrolled, self._caps, self._owners.values.tolist(), strict=True)
        with self._embedded.store.begin() as tx:
            out = tx.exits(task.id, [device.caller.party for device in self._enrolled])
            for device, cap, value in devices:
                if device.caller.party in out:
                    continue
                budget = BiddingStrategy().plan(
                    task.card, value=value, reward=reward, total=task.total_budget, cap=cap
                )
                submit_plan(
                    self._embedded.market,
                    tx,
                    device.caller,
                    task.id,
                    tick=task.tick,
                    budget=budget,
                    previous=task.offer,
                )

    def decide(self, task: Task) -> None:
        """Sign the terms of allocations; a device that cannot reserve its budget declines."""
        market = self._embedded.market
        with self._embedded.store.begin() as tx:
            for allocation in tx.allocations(task.id):
                if allocation.state != "offered":
                    continue
                owner = owner_number(allocation)
                device = self._enrolled[owner]
                offered = offered_terms(market, task, allocation)
                signature = None
                try:
                    self.close_unspent(task, owner)
                    self.filters[owner].agree(terms_of(task, allocation))
                    signature = device.key.sign(canonical(offered.terms))
                except Refused as refusal:
                    self.declined.append(f"owner {owner}: {refusal}")
                decide(
                    market,
                    tx,
                    device.caller,
                    task.id,
                    accept=signature is not None,
                    terms_digest=offered.digest,
                    signature=signature,
                )

    def update(self, task: Task) -> int:
        """Send the updates of the open round from all devices that are there; return how many."""
        if self._engine is None:
            self._engine = self._local_engine(task)
        with self._embedded.store.begin() as tx:
            if task.card.evidence is not None:
                still = {owner_number(a) for a in tx.allocations(task.id) if a.state == "signed"}
                self._remaining = np.array([owner in still for owner in self._signed])
            model = np.frombuffer(tx.round(task.id, task.round).model, dtype="<f8")
            updates = self._engine.ask(task.round, model)
            for i, vector in zip(updates.owners.tolist(), updates.vectors, strict=True):
                accept_update(
                    self._embedded.market,
                    tx,
                    self._enrolled[self._signed[i]].caller,
                    task.id,
                    round=task.round,
                    body=vector.astype("<f8").tobytes(),
                )
        return len(updates.owners)

    def _local_engine(self, task: Task) -> LocalEngine:
        """Return what computes the updates of all who signed, in the order of their numbers."""
        with self._embedded.store.read() as tx:
            signed = [each for each in tx.allocations(task.id) if each.state == "signed"]
        signed.sort(key=owner_number)
        self._signed = [owner_number(each) for each in signed]
        terms, numbers = [terms_of(task, each) for each in signed], np.array(self._signed)
        without = self._owners.without_data
        return LocalEngine(
            self._model,
            self._owners.records(numbers),
            terms,
            self._owners.noise(terms),
            filters=[self.filters[i] for i in self._signed],
            available=self._available,
            without_data=None if without is None else without[numbers],
        )

    def _available(self, round: int, count: int) -> BoolArray:
        """Say who of those who signed is there in a round, and was not dismissed."""
        remaining = np.ones(count, dtype=bool) if self._remaining is None else self._remaining
        there = self._owners.available
        return remaining if there is None else remaining & there(round, count)

    def close_unspent(self, task: Task, owner: int) -> None:
        """Give up what was reserved in a settlement that is made again."""
        for account in self.filters[owner].accounts():
            name = account.terms.task
            if name.startswith(f"{task.id}@") and name != _account(task):
                self.filters[owner].close(name)

    def close(self, task: Task) -> None:
        """End the task on every device that signed: it delivers no more, and stores no update."""
        for owner in self._signed:
            self.filters[owner].close(_account(task))

    def spent(self, task: Task, owner: int) -> float:
        """Return what an owner's filter says is gone, in zCDP."""
        accounts = self.filters[owner].accounts()
        return float(sum(each.spent for each in accounts if each.terms.task == _account(task)))


def owner_number(allocation: Allocation) -> int:
    """Return the number of the owner of an allocation."""
    return int(allocation.owner.removeprefix("owner:"))


def terms_of(task: Task, allocation: Allocation) -> Terms:
    """Return what the owner of an allocation sells."""
    assert allocation.budget is not None
    return task.card.privacy_terms(task=_account(task), budget=allocation.budget)


def _account(task: Task) -> str:
    """Return the name of a device's account: one for each settlement, as on real devices."""
    return f"{task.id}@{task.settled_tick}"
