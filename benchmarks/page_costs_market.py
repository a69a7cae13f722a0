"""A market of the sizes at which pages are measured, put into a database in bulk.

Tasks are published, settled, trained and completed by the market itself; what many owners say, sign
and answer in between, and what they are paid for it, is written to the tables directly.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import bindparam, insert, update

from fedbourse.market import log
from fedbourse.market.commands import access, payouts, scheduler
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import training as training_commands
from fedbourse.market.parties import MARKET
from fedbourse.market.records import State
from fedbourse.market.service import escrow
from fedbourse.protocol.messages import earned
from fedbourse.storage import schema
from fedbourse.testing.trading import BUYER, EVIDENCE, OPERATOR, Trading, card, noise
from market_scale import PATIENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from fedbourse.market.records import Allocation, Task
    from fedbourse.storage import SqlStore

AT_ONCE = 10_000
ACTIVE = 150
"""Of the small tasks, those that have not ended: a buyer may have 200 of them."""
TICKS = 20
"""Replies of each of the owners on the first page of an audit; the others replied once."""
LISTED = 1000
"""The longest page of a list: that many tokens, pay-outs, and owners with many replies."""
HASH = "0" * 64


@dataclass(frozen=True)
class Sizes:
    """How much of everything there is."""

    tasks: int
    rounds: int
    owners: int
    transfers: int


@dataclass(frozen=True)
class Filled:
    """What pages are asked about, and by whom."""

    tasks: Mapping[str, str]
    """The tasks with many owners by their states, and ``rounds``, the one with many rounds."""
    parties: Mapping[str, str]
    tokens: Mapping[str, str]
    """Of those who sign in; a stranger has none."""
    now_ms: int


class Filling:
    """A market that is being filled."""

    def __init__(self, store: SqlStore, sizes: Sizes) -> None:
        self.store, self.sizes = store, sizes
        self.trading = Trading(store)
        self.market = self.trading.market
        self.listed = min(LISTED, sizes.tasks)
        self.owner = f"owner:m{sizes.owners // 2:07d}"
        """The owner who looks at pages: interested in every task, and paid most often."""

    def fill(self) -> Filled:
        """Make all of it."""
        self.trading.fund(10**14)
        # Now, while nothing else waits for the clock that it needs.
        rounds = self._many_rounds()
        small = self._small_tasks()
        many = {
            State.OPEN: self._opened(),
            State.ANNOUNCED: self._announced(),
            State.SETTLED: self._settled(),
            State.TRAINING: self._trained(rounds=2),
            State.COMPLETED: self._completed(),
        }
        tasks = {str(state): task.id for state, task in many.items()}
        draft = self.trading.do(buyer_commands.create, BUYER, many[State.OPEN].card)
        tasks |= {"draft": draft.id, "rounds": rounds.id} | self._with_evidence()
        self._many_transfers(small[-1])
        parties = {"buyer": BUYER.party, "owner": self.owner, "operator": OPERATOR.party}
        self._tick(many.values())
        tokens = self._tokens(parties)
        self._payouts()
        return Filled(tasks, parties, tokens, self.trading.time_ms)

    # Tasks

    def _small_tasks(self) -> list[Task]:
        """Publish many tasks that one owner is interested in; most of them were cancelled."""
        made = []
        with self.store.begin() as tx:
            for number in range(self.sizes.tasks):
                self.trading.time_ms += 1000
                goal = card(goal=f"is flight {number} late?", deadlines=PATIENT)
                task = buyer_commands.create(self.market, tx, BUYER, goal)
                task = buyer_commands.open_task(self.market, tx, BUYER, task.id)
                if number < self.sizes.tasks - ACTIVE:
                    task = buyer_commands.cancel(self.market, tx, BUYER, task.id, reason="enough")
                made.append(task)
        self._interests((task.id, self.owner) for task in made)
        return made

    def _with_evidence(self) -> dict[str, str]:
        """Publish a task with evidence; complete another one; let a third wait for a gradient."""
        owners = self.trading.owners(1.0, 1.2)
        judged = self.trading.completed(owners, rounds=2, **EVIDENCE)
        published = self.trading.opened(deadlines=PATIENT, **EVIDENCE)
        spec = replace(EVIDENCE["evidence"], source="gradients")
        unhurried = replace(PATIENT, review_s=0)
        waiting = self.trading.in_training(owners, evidence=spec, deadlines=unhurried)
        return {"judged": judged.id, "evidence": published.id, "waiting": waiting.id}

    def _opened(self, **changes: Any) -> Task:
        task = self.trading.opened(deadlines=PATIENT, **changes)
        self._interests((task.id, name) for name in self._names())
        return task

    def _announced(self, **changes: Any) -> Task:
        task = self._opened(**changes)
        task = self.trading.do(buyer_commands.announce, BUYER, task.id)
        drawn = np.random.default_rng(1).lognormal(-7, 1, self.sizes.owners)
        # At half of the total that was announced they qualify, so that the task can be settled.
        budgets = (0.5 * task.totals[0] * drawn / drawn.sum()).tolist()
        said = {"task": task.id, "salt": "0" * 32, "leaf": HASH, "at_ms": self.trading.time_ms}
        replies = zip(self._names(), budgets, strict=True)
        self._add(
            schema.replies,
            (said | {"tick": 0, "owner": name, "budget": budget} for name, budget in replies),
        )
        self._add(
            schema.replies,
            (
                said | {"tick": tick, "owner": name, "budget": budget}
                for name, budget in zip(self._names()[: self.listed], budgets, strict=False)
                for tick in range(1, TICKS)
            ),
        )
        return task

    def _settled(self, **changes: Any) -> Task:
        task = self._announced(**changes)
        self.trading.time_ms = self.trading.task(task.id).deadline_ms
        with self.store.begin() as tx:
            assert scheduler.move_on(self.market, tx, task.id)
        return self.trading.task(task.id)

    def _trained(self, *, rounds: int) -> Task:
        """Let all owners sign and deliver the first round; half of them were late once."""
        task = self._settled(rounds=rounds)
        with self.store.begin() as tx:
            tx._connection.execute(
                update(schema.allocations)
                .where(schema.allocations.c.task == task.id)
                .values(state="signed", signature=HASH)
            )
            task = training_commands.start(self.market, tx, MARKET, task.id)
        self._updates(task, 1)
        names = self._names()
        at = {"task": task.id, "at_ms": self.trading.time_ms}
        refused = {"round": 0, "reason": "late"}
        self._add(schema.refusals, (at | refused | {"owner": each} for each in names[::2]))
        sums = {"updates": 1, "squares": 3.0, "compared": 1, "agreement": 0.1, "repeats": 0}
        self._add(
            schema.device_statistics,
            (sums | {"task": task.id, "owner": each, "last_vector": HASH} for each in names),
        )
        return task

    def _completed(self) -> Task:
        return self._closed(self._trained(rounds=1))

    def _tick(self, tasks: Iterable[Task]) -> None:
        """Let tasks that were announced have had as many ticks as there are replies."""
        with self.store.begin() as tx:
            for each in tasks:
                task = tx.task(each.id)
                tx.save_task(replace(task, totals=task.totals[:1] * TICKS))

    def _many_rounds(self) -> Task:
        """Train a few owners for very many rounds, of which the market closes the last."""
        rounds = self.sizes.rounds
        owners = self.trading.owners(1.0, 1.1, 1.2)
        task = self.trading.in_training(owners, rounds=rounds)
        with self.store.read() as tx:
            opened = vars(tx.round(task.id, 0))
        at_ms, last = self.trading.time_ms, rounds - 1
        closed = {"model": b"", "closed_ms": at_ms, "updates": len(owners)}
        body = {"updates": len(owners), "void": False, "answers_root": HASH, "model_hash": HASH}
        events, after = [], (task.last_sequence, task.last_hash)
        for number in range(last):
            said = {"round": number, **body, "state": "training"}
            event = log.next_event(task.id, "round", said, at_ms=at_ms, after=after)
            events.append(vars(event) | {"body": json.dumps(said)})
            after = event.sequence, event.hash
        self._add(schema.events, events)
        self._add(schema.rounds, (opened | {"number": number} for number in range(1, rounds)))
        with self.store.begin() as tx:
            tx._connection.execute(
                update(schema.rounds)
                .where(schema.rounds.c.task == task.id, schema.rounds.c.number < last)
                .values(**closed)
            )
            tx.save_task(replace(task, round=last, last_sequence=after[0], last_hash=after[1]))
        self._updates(self.trading.task(task.id), rounds)
        return self._closed(self.trading.task(task.id))

    def _closed(self, task: Task) -> Task:
        with self.store.begin() as tx:
            task = training_commands.close_round(self.market, tx, task.id)
        assert task.state is State.COMPLETED
        return task

    # Rows

    def _names(self) -> list[str]:
        return [f"owner:m{number:07d}" for number in range(self.sizes.owners)]

    def _interests(self, whose: Iterable[tuple[str, str]]) -> None:
        said = {"value": 2.0, "salt": "0" * 32, "leaf": HASH, "at_ms": self.trading.time_ms}
        self._add(schema.interests, (said | {"task": t, "owner": name} for t, name in whose))

    def _updates(self, task: Task, rounds: int) -> None:
        """Let all who signed deliver so many rounds, the open one last, and be paid for it."""
        allocations = self.trading.allocations(task.id)
        vector = noise(task, allocations[0].budget, "an update")
        at = {"task": task.id, "at_ms": self.trading.time_ms, "hash": HASH, "receipt": "{}"}
        self._add(
            schema.updates,
            (
                at
                | {"round": number, "owner": allocation.owner}
                # Vectors of rounds that are closed are not kept.
                | {"vector": vector if number == task.round else None}
                for number in range(rounds)
                for allocation in allocations
            ),
        )
        self._add(schema.transfers, self._pay(task, allocations, rounds))
        columns = schema.allocations.c
        paid = (
            update(schema.allocations)
            .where(columns.task == task.id, columns.owner == bindparam("whose"))
            .values(delivered=rounds, earned=bindparam("now"))
        )
        amounts = [
            {"whose": allocation.owner, "now": _due(task, allocation, rounds)}
            for allocation in allocations
        ]
        with self.store.begin() as tx:
            tx._connection.execute(paid, amounts)

    def _pay(
        self, task: Task, allocations: list[Allocation], rounds: int
    ) -> Iterator[dict[str, Any]]:
        for delivered in range(1, rounds + 1):
            for allocation in allocations:
                amount = _due(task, allocation, delivered) - _due(task, allocation, delivered - 1)
                if amount:
                    yield {
                        "id": f"{task.id}/{allocation.owner}/{delivered}",
                        "debit": escrow(task.id),
                        "credit": allocation.owner,
                        "amount": amount,
                        "memo": f"update {delivered} of {task.card.rounds}",
                        "at_ms": self.trading.time_ms,
                    }

    def _many_transfers(self, task: Task) -> None:
        """Pay one owner very often, out of one escrow."""
        count, account = self.sizes.transfers, escrow(task.id)
        self.trading.fund(count, party=account, reference="many")
        at = {"debit": account, "credit": self.owner, "amount": 1, "at_ms": self.trading.time_ms}
        self._add(
            schema.transfers,
            (at | {"id": f"{task.id}/many/{n}", "memo": f"update {n}"} for n in range(count)),
        )

    def _payouts(self) -> None:
        request: dict[str, Any] = {"account": BUYER.party, "amount_micro": 3, "destination": "home"}
        with self.store.begin() as tx:
            for _ in range(self.listed):
                payouts.request(self.market, tx, BUYER, **request)

    def _tokens(self, parties: Mapping[str, str]) -> dict[str, str]:
        """Issue a token to each of those who sign in, and very many others."""
        made = {}
        with self.store.begin() as tx:
            others = {f"buyer:b{number}": "buyer" for number in range(self.listed)}
            for party, scope in ({name: who for who, name in parties.items()} | others).items():
                _, made[party] = access.issue_token(
                    self.market, tx, None, holder=party, scopes=[scope]
                )
        return {who: made[name] for who, name in parties.items()}

    def _add(self, table: Any, rows: Iterable[dict[str, Any]]) -> None:
        some: list[dict[str, Any]] = []
        for each in rows:
            some.append(each)
            if len(some) == AT_ONCE:
                self._insert(table, some)
                some = []
        self._insert(table, some)

    def _insert(self, table: Any, rows: list[dict[str, Any]]) -> None:
        if rows:
            with self.store.begin() as tx:
                tx._connection.execute(insert(table), rows)


def _due(task: Task, allocation: Allocation, delivered: int) -> int:
    return int(earned(allocation.payment, delivered=delivered, rounds=task.card.rounds))


def filled(store: SqlStore, sizes: Sizes) -> Filled:
    """Fill an empty market, and return what there is in it."""
    return Filling(store, sizes).fill()
