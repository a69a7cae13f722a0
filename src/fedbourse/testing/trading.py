"""A market in a real database with a clock that tests turn, and owners whose devices have keys."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedbourse.encoding.canonical import canonical
from fedbourse.encoding.documents import plain
from fedbourse.game import share_at
from fedbourse.game.price_discovery import TICKS_MAX
from fedbourse.learning.records import Records
from fedbourse.ledger import OUTSIDE
from fedbourse.market import documents, updates
from fedbourse.market.audit import Check, verify_task
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.commands import scheduler
from fedbourse.market.lifecycle import ENDED
from fedbourse.market.parties import Caller, EnrolledDevice
from fedbourse.market.records import Allocation, State, Task, TickReply
from fedbourse.market.service import Market, escrow
from fedbourse.market.views import View
from fedbourse.protocol.keys import SigningKey, key_id
from fedbourse.tasks.builder import task_card
from fedbourse.tasks.card import Assumptions, Deadlines, TaskCard
from fedbourse.tasks.evidence import EvidenceSpec, reference_file, reference_hash

KEY = SigningKey.generate()


def card(**changes) -> TaskCard:
    """A small task."""
    items: dict[str, Any] = {
        "goal": "is it late?",
        "data": "flights",
        "reward": 10.0,
        "features": 3,
        "rounds": 4,
        "samples": 20,
        "max_rho": 100.0,
        "assumptions": Assumptions(accuracy_value=20.0),
        "deadlines": Deadlines(review_s=0),
    }
    return task_card(**(items | changes))


def _reference() -> bytes:
    """Twenty records of the small task, and their salt."""
    rng = np.random.default_rng(5)
    features = np.column_stack([rng.normal(size=(20, 2)), np.ones(20)])
    return reference_file(Records(features, np.arange(20.0) % 2, 2), salt=bytes(32))


REFERENCE = _reference()
EVIDENCE: dict[str, Any] = {
    "evidence": EvidenceSpec(reference=reference_hash(REFERENCE), records=20),
    "reference": REFERENCE,
}
"""What makes the small task one with evidence."""


def caller(party: str, device: str | None = None) -> Caller:
    """Somebody with the scope that its name says."""
    return Caller(party, frozenset({party.partition(":")[0]}), device)  # type: ignore[arg-type]


BUYER = caller("buyer:acme")
OPERATOR = caller("operator:main")
AUDITOR = caller("auditor:kay")


def best_budget(owner: Owner, task: Task) -> float:
    """Return the budget that is best for an owner at the announced total, by the card's rules."""
    assert task.total_budget is not None
    assert task.reward is not None
    total, reward, card = task.total_budget, task.reward / 1e6, task.card
    if owner.value >= reward / total:
        return 0.0
    best = share_at(owner.value, total, reward=reward) * total
    return min(max(best, card.min_budget), card.max_rho)


@dataclass
class Owner:
    """An owner with a value, and a device with a key."""

    name: str
    value: float
    key: SigningKey = field(default_factory=SigningKey.generate)

    @property
    def caller(self) -> Caller:
        return caller(self.name, key_id(self.key.public))


class Trading:
    """What a test does to a market, each step in its own transaction."""

    def __init__(self, store) -> None:
        self.store = store
        self.time_ms = 1_800_000_000_000
        self.market = Market(KEY, now_ms=lambda: self.time_ms)

    def owners(self, *values: float) -> list[Owner]:
        """Enrol owners with these values."""
        made = [Owner(f"owner:{i:06d}", value) for i, value in enumerate(values)]
        with self.store.begin() as tx:
            for owner in made:
                device = key_id(owner.key.public)
                tx.put_device(EnrolledDevice(device, owner.name, owner.key.public, self.time_ms))
        return made

    def fund(self, micro: int, *, party: str = BUYER.party, reference: str = "first") -> None:
        """Give somebody money from outside."""
        with self.store.begin() as tx:
            self.market.pay(tx, f"deposit/{reference}", (OUTSIDE, party), micro, "test")

    def do(self, command, who, *arguments, **options):
        """Carry out one command."""
        with self.store.begin() as tx:
            return command(self.market, tx, who, *arguments, **options)

    def see(self, view, *arguments, **options):
        """Look at something."""
        with self.store.read() as tx:
            if view.__qualname__.startswith(("TaskView.", "View.")):
                return view(View(self.market, tx, arguments[0]), *arguments[1:], **options)
            return view(tx, *arguments, **options)

    def shown(self, view, *arguments, **options):
        """Look at something, as the plain document that the wire has for it."""
        return plain(self.see(view, *arguments, **options))

    def task(self, task_id: str) -> Task:
        with self.store.read() as tx:
            return tx.task(task_id)

    def wait(self, seconds: float) -> int:
        """Let time pass, and the market act."""
        self.time_ms += int(seconds * 1000)
        return self.advance()

    def advance(self) -> int:
        return scheduler.advance(self.market, self.store)

    def balance(self, account: str) -> int:
        with self.store.read() as tx:
            return tx.balance(account)

    # -- whole stretches ---------------------------------------------------------------------------

    def opened(self, *, reference: bytes | None = None, **changes) -> Task:
        task = self.do(buyer_commands.create, BUYER, card(**changes))
        if reference is not None:
            self.do(buyer_commands.put_reference, BUYER, task.id, content=reference)
        return self.do(buyer_commands.open_task, BUYER, task.id, confirm_upfront=True)

    def announced(self, owners, *, report: bool = False, **changes) -> Task:
        task = self.opened(**changes)
        for owner in owners:
            self.do(
                owner_commands.register_interest,
                owner.caller,
                task.id,
                value=owner.value if report else None,
                previous=task.card.digest,
            )
        return self.do(buyer_commands.announce, BUYER, task.id)

    def plan(self, owner: Owner, task: Task, budget: float | None = None) -> TickReply:
        """Reply to the offer with a budget, or with the best one at the announced total."""
        return self.do(
            owner_commands.submit_plan,
            owner.caller,
            task.id,
            tick=task.tick,
            budget=best_budget(owner, task) if budget is None else budget,
            previous=task.offer,
        )

    def play(self, owners, task: Task, reply=best_budget) -> Task:
        """Let owners reply to every tick until it is settled or cancelled; None is silence."""
        for _ in range(2 * TICKS_MAX):
            if task.state is not State.ANNOUNCED:
                return task
            for owner in owners:
                budget = reply(owner, task)
                if budget is not None:
                    self.plan(owner, task, budget)
            before = task
            self.advance()
            if self.task(task.id) == before:  # somebody was silent
                self.wait(task.card.deadlines.tick_s)
            task = self.task(task.id)
        raise AssertionError(f"no settlement after {2 * TICKS_MAX} ticks")

    def settled(self, owners, *, budgets=None, **changes) -> Task:
        """Let all owners reply to every tick, with these budgets or the best, until the end."""
        task = self.announced(owners, **changes)
        if budgets is None:
            return self.play(owners, task)
        constant = {owner.name: budget for owner, budget in zip(owners, budgets, strict=True)}
        return self.play(owners, task, lambda owner, task: constant[owner.name])

    def decide(
        self, owner: Owner, task_id: str, *, accept: bool = True, key: SigningKey | None = None
    ) -> Allocation:
        """Sign with the owner's key, or with another one; or decline."""
        participation = self.participation(owner, task_id)["terms"]
        return self.do(
            owner_commands.decide,
            owner.caller,
            task_id,
            accept=accept,
            terms_digest=participation["digest"],
            signature=(key or owner.key).sign(canonical(participation["terms"]))
            if accept
            else None,
        )

    def participation(self, owner: Owner, task_id: str) -> dict:
        with self.store.read() as tx:
            return plain(View(self.market, tx, owner.caller).participation(task_id))

    def allocations(self, task_id: str):
        with self.store.read() as tx:
            return tx.allocations(task_id)

    def in_training(self, owners, **changes) -> Task:
        return self.signed(owners, self.settled(owners, **changes))

    def signed(self, owners, task: Task) -> Task:
        """Let everybody who was chosen sign, and the market go on."""
        chosen = {allocation.owner for allocation in self.allocations(task.id)}
        for owner in owners:
            if owner.name in chosen:
                self.decide(owner, task.id)
        self.advance()
        return self.task(task.id)

    def update(self, owner: Owner, task: Task, *, round: int | None = None, gradient=0.0) -> dict:
        """Send a gradient with noise; by default noise alone."""
        number = task.round if round is None else round
        body = noise(
            task,
            self.participation(owner, task.id)["allocation"]["budget"],
            f"{owner.name} {number}",
            gradient=gradient,
        )
        return self.do(updates.accept_update, owner.caller, task.id, round=number, body=body)

    def verified(self, task_id: str, *, owner: Owner | None = None) -> list[Check]:
        """Verify a task as an auditor, or as an owner."""
        return verify_task(**self.records(task_id, viewer=owner or AUDITOR))

    def records(self, task_id: str, *, viewer: Owner | Caller | None) -> dict:
        """Fetch what an auditor, an owner, or a stranger (None) may see, as JSON gives it."""
        with self.store.read() as tx:
            task = tx.task(task_id)
            records = {
                "task": documents.task_document(task),
                "card": task.card.document,
                "events": tx.events(task_id, limit=10_000),
            }
            if isinstance(viewer, Owner):
                view = View(self.market, tx, viewer.caller)
                own = plain(view.participation(task_id))
                if own["allocation"]:
                    own["proof"] = view.proof(task_id)
                records["own"] = own
            elif viewer is not None:
                view = View(self.market, tx, viewer)
                everybody = view.everybody(task_id, after="", limit=100_000)
                entries = tx.entries(account=escrow(task_id), limit=100_000)
                records["owners"] = everybody.owners
                records["entries"] = entries
                records["escrow_micro"] = tx.balance(escrow(task_id))
                begun = min(task.round + 1, task.card.rounds)
                records["updates"] = [
                    view.updates(task_id, round=number, after="", limit=100_000).updates
                    for number in range(begun if trained(tx, task) else 0)
                ]
                if task.card.evidence is not None and task.state in ENDED:
                    closed = range(sum(e.kind == "round" for e in records["events"]))
                    rounds_kept = [
                        vars(view.kept_round(task_id, number))
                        | {"updates": _kept_updates(view, task_id, number)}
                        for number in closed
                    ]
                    report = view.evidence(task_id)
                    records["evidence"] = {"findings": report.findings, "rounds": rounds_kept}
                    reference = view.reference(task_id) if report.revealed else None
        records = json.loads(canonical(records))
        if "updates" in records:
            records["updates"] = dict(enumerate(records["updates"]))
        if "evidence" in records:
            records["evidence"]["reference"] = reference
        return records

    def completed(self, owners, *, absent=(), **changes) -> Task:
        """Let everybody who was chosen answer every round, but (round, owner) in ``absent``."""
        return self.trained(owners, self.in_training(owners, **changes), absent=absent)

    def trained(self, owners, task: Task, *, absent=(), until: int | None = None) -> Task:
        """Let those who signed answer rounds until all are closed, or this one is open."""
        chosen = {allocation.owner for allocation in self.allocations(task.id)}
        while task.state is State.TRAINING and task.round != until:
            before = task
            for place, owner in enumerate(owners):
                if owner.name in chosen and (task.round, place) not in absent:
                    self.update(owner, task)
            if not self.advance() or self.task(task.id) == before:
                self.wait(task.card.deadlines.round_s)
            task = self.task(task.id)
        return task

    def events(self, task_id: str) -> list:
        with self.store.read() as tx:
            return tx.events(task_id, limit=10_000)


def _kept_updates(view: View, task: str, number: int) -> dict[str, str]:
    updates = view.kept_updates(task, number, limit=100_000).updates
    return {each.owner: each.vector for each in updates}


def trained(tx, task: Task) -> bool:
    return any(event.kind == "training" for event in tx.events(task.id, limit=1000))


def noise(task: Task, budget: float, seed: str, *, gradient=0.0) -> bytes:
    """An update that passes the market's checks: noise, the same for the same seed."""
    scale = task.card.privacy_terms(task=task.id, budget=budget).scale
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8])
    vector = np.random.default_rng(number).normal(0, scale, task.card.dimension)
    return (vector + gradient).astype("<f8").tobytes()
