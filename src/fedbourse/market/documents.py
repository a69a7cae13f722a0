"""What each caller may see of tasks, as plain documents.

Everybody sees the card, R, P and the number of participants; an owner its own allocation; the buyer
the totals and the model; auditors and the operator every allocation. Nobody else sees any owner's
value or plan.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from fedbourse.encoding.canonical import canonical
from fedbourse.errors import Conflict, NotFound, Unauthenticated
from fedbourse.market import merkle
from fedbourse.market.commands.owner import offered_terms
from fedbourse.market.document_types import (
    OwnerPage,
    OwnerRecords,
    Participants,
    Participation,
    Proof,
    PublishedCard,
    TaskDocument,
    TaskPage,
    TaskReport,
    UpdateEntry,
    UpdatePage,
)
from fedbourse.market.log_summary import summary_of
from fedbourse.market.records import AllocationState, State, promised_micro
from fedbourse.market.service import show
from fedbourse.market.task_money import money_of
from fedbourse.protocol.messages import participation_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Transaction
    from fedbourse.market.records import Round, Task, TaskOrder
    from fedbourse.market.service import Market


def task_document(task: Task) -> TaskDocument:
    """Return what everybody may see of a task, but its card."""
    return TaskDocument(
        task=task.id,
        state=task.state,
        buyer=task.buyer,
        card=task.card.digest,
        goal=task.card.goal,
        data=task.card.data,
        created_ms=task.created_ms,
        deadline_ms=task.deadline_ms,
        reward_micro=task.reward,
        interested=task.interested or None,
        tick=task.tick,
        tick_ends_ms=task.tick_ends_ms,
        total_budget=task.total_budget,
        settled_tick=task.settled_tick,
        review_ends_ms=task.review_ends_ms,
        reference_ends_ms=task.reference_ends_ms,
        offer=task.offer or None,
        round=task.round,
        rounds=task.card.rounds,
        events=task.last_sequence + 1,
        last_hash=task.last_hash,
        state_signature=task.state_signature,
    )


def task_documents(tx: Transaction, tasks: Sequence[Task]) -> list[TaskDocument]:
    """Return what everybody may see of tasks; of open ones, how many are interested too."""
    counts = tx.counts_of_interests([task.id for task in tasks if task.state is State.OPEN])
    return [
        replace(task_document(task), interested=counts.get(task.id, 0))
        if task.state is State.OPEN
        else task_document(task)
        for task in tasks
    ]


def promised(task: Task) -> dict[str, Any]:
    """Return the reward as it is known now: fixed, said by the card, or still to be computed."""
    if task.reward is not None:
        return {"micro": task.reward, "fixed": True}
    return {"micro": promised_micro(task.card), "fixed": False}


class TaskView:
    """Tasks at one moment, as one caller may see them; None is a stranger."""

    def __init__(self, market: Market, tx: Transaction, caller: Caller | None) -> None:
        self._market, self._tx, self.caller = market, tx, caller

    @property
    def authenticated(self) -> Caller:
        """The caller, where it must have proved who it is."""
        if self.caller is None:
            raise Unauthenticated(
                "this needs a token (Authorization: Bearer) or a device's signature"
            )
        return self.caller

    @property
    def sees_all(self) -> bool:
        """Whether every owner's allocation and every transfer is the caller's to see."""
        return self.caller is not None and bool(self.caller.scopes & {"auditor", "operator"})

    def task(self, task: str) -> Task:
        """Return a task, if the caller may know of it."""
        return show(self._tx.task(task), self.caller)

    def task_document(self, task: str) -> TaskDocument:
        """Return what everybody may see of one task; while open, how many are interested."""
        return task_documents(self._tx, [self.task(task)])[0]

    def tasks(self, *, state: State | None, before: str | None, limit: int) -> TaskPage:
        """Return tasks, newest first; drafts only to their buyer, the operator and auditors."""
        tasks = self._tx.tasks(
            states=() if state is None else (state,),
            seen_by=self._drafts_of,
            before=before,
            limit=limit,
        )
        last = tasks[-1].id if len(tasks) == limit else None
        return TaskPage(task_documents(self._tx, tasks), last)

    def search_tasks(
        self, *, state: State | None, words: Sequence[str], order: TaskOrder, page: int, rows: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Return one page of the tasks that mention all words, and how many there are."""
        states, seen_by = () if state is None else (state,), self._drafts_of
        tasks = self._tx.search_tasks(
            states=states,
            seen_by=seen_by,
            words=words,
            order=order,
            skip=(page - 1) * rows,
            limit=rows,
        )
        documents = zip(task_documents(self._tx, tasks), tasks, strict=True)
        rows_shown = [vars(each) | {"reward": promised(task)} for each, task in documents]
        return rows_shown, self._tx.count_tasks(states=states, seen_by=seen_by, words=words)

    @property
    def _drafts_of(self) -> str | None:
        """Whose tasks are seen before they are opened; None where all are."""
        if self.caller is None:
            return ""
        return None if self.sees_all else self.caller.party

    def card(self, task: str) -> PublishedCard:
        """Return a task's card with its hash, and the fund as it was pinned when the task opened.

        Of a task that was never opened it is the fund as the market publishes it now.
        """
        stored = self.task(task)
        events = self._tx.events(stored.id, limit=2)
        pinned = [event.body["fund"] for event in events if event.kind == "opened"]
        fund = pinned[0] if pinned else self._market.fund
        return PublishedCard(stored.card.document, stored.card.digest, fund)

    def report(self, task: str) -> TaskReport:
        """Return the totals of a task: for its buyer, auditors and the operator.

        Money is shown to the buyer as ``task_money`` says.
        """
        tx, caller, stored = self._tx, self.authenticated, self.task(task)
        if caller.party != stored.buyer:
            caller.require("auditor", "operator")
        log_summary = summary_of(tx, stored.id)
        events = tx.events(stored.id, limit=10 * stored.card.rounds + 1000)
        return TaskReport(
            **vars(task_document(stored)),
            card_document=stored.card.document,
            participants=Participants(**allocation_counts(tx, stored)),
            settlement=log_summary.settlement,
            out=log_summary.out_counts,
            restarts=log_summary.restarts,
            money_micro=money_of(tx, caller, [stored])[0],
            refused_updates=tx.count_refused(stored.id),
            rounds_closed=[event.body for event in events if event.kind == "round"],
        )

    def model(self, task: str) -> Round:
        """Return the model of a completed task to its buyer and the operator."""
        stored = self.task(task)
        if self.authenticated.party != stored.buyer:
            self.authenticated.require("operator")
        if stored.state is not State.COMPLETED:
            raise Conflict(f"the model needs a task that is completed; it is {stored.state.value}")
        return self._tx.round(stored.id, stored.card.rounds)

    def participation(self, task: str) -> Participation:
        """Return all that the market keeps of the caller in one task."""
        tx, stored, owner = self._tx, self.task(task), self._owner
        replies = tx.replies_of(stored.id, owner)
        allocation = tx.allocation(stored.id, owner)
        last = tx.last_update(stored.id, owner)
        exit = tx.exit(stored.id, owner)
        terms = (
            offered_terms(self._market, stored, allocation)
            if allocation and allocation.budget is not None
            else None
        )
        message = participation_message(
            task=stored.id,
            owner=owner,
            sequence=stored.last_sequence,
            allocation=allocation.state if allocation else None,
            terms=terms.digest if terms else None,
            exit=exit.reason if exit else None,
            earned_micro=allocation.earned if allocation else 0,
            held_micro=allocation.held if allocation else 0,
        )
        # The plan is the reply that counts: to the tick that was settled at, else the last one.
        plans = [reply for reply in replies if stored.settled_tick in (None, reply.tick)]
        return Participation(
            task=stored.id,
            owner=owner,
            interest=tx.interest(stored.id, owner),
            plan=plans[-1] if plans else None,
            replies=replies,
            exit=exit,
            allocation=allocation,
            terms=terms,
            receipt=json.loads(last.receipt) if last else None,
            sequence=stored.last_sequence,
            signature=self._market.key.sign(canonical(message)),
        )

    @property
    def _owner(self) -> str:
        self.authenticated.require("owner")
        return self.authenticated.party

    def proof(self, task: str) -> Proof:
        """Return the path that leads from the caller's allocation to the root in the log."""
        owner, stored = self._owner, self.task(task)
        allocation = self._tx.allocation(stored.id, owner)
        if allocation is None:
            raise NotFound(f"{owner} has no allocation in task {stored.id}")
        position, leaves = allocation.position, self._tx.last_position(stored.id) + 1
        places, root = merkle.neighbours(position, leaves=leaves)
        nodes = self._tx.nodes(stored.id, [*filter(None, places), root])
        block = self._tx.leaves_near(allocation, merkle.block_of(position))
        path = merkle.stored_proof(block, position, leaves=leaves, nodes=nodes)
        return Proof(leaf=allocation.leaf, position=position, path=path, root=nodes[root])

    def round_request(self, task: str, *, after: int) -> Round | None:
        """Return the open round to an owner who signed; None where it is not after this one.

        None as well where the owner is asked no more, or the round waits to open.
        """
        owner, stored = self._owner, self.task(task)
        allocation = self._tx.allocation(stored.id, owner)
        if allocation is None or not allocation.trained:
            raise NotFound(f"{owner} signed no terms of task {stored.id}")
        if stored.state is not State.TRAINING:
            raise Conflict(f"a round needs a task in training; it is {stored.state.value}")
        waits = stored.reference_ends_ms is not None
        if waits or allocation.state == "dismissed" or stored.round <= after:
            return None
        return self._tx.round(stored.id, stored.round)

    def everybody(self, task: str, *, after: str, limit: int) -> OwnerPage:
        """Return what owners said and were promised, in full: for auditors and the operator."""
        self.authenticated.require("auditor", "operator")
        tx, id = self._tx, self._tx.task(task).id
        interests = tx.interests(id, after=after, limit=limit)
        names = [each.owner for each in interests]
        replies, exits = tx.replies(id, names), tx.exits(id, names)
        allocations = {each.owner: each for each in tx.allocations(id, after=after, limit=limit)}
        owners = [
            OwnerRecords(
                owner=each.owner,
                interest=each,
                replies=replies.get(each.owner, []),
                exit=exits.get(each.owner),
                allocation=allocations.get(each.owner),
            )
            for each in interests
        ]
        return OwnerPage(owners, names[-1] if len(names) == limit else None)

    def updates(self, task: str, *, round: int, after: str, limit: int) -> UpdatePage:
        """Return the owner and hash of each update of a round: for auditors and the operator."""
        self.authenticated.require("auditor", "operator")
        id = self._tx.task(task).id
        if not self._tx.has_round(id, round):
            raise NotFound(f"task {id} has no round {round}")
        stored = self._tx.updates(id, round, after=after, limit=limit)
        updates = [UpdateEntry(update.owner, update.hash) for update in stored]
        return UpdatePage(updates, stored[-1].owner if len(stored) == limit else None)


def allocation_counts(tx: Transaction, task: Task) -> dict[str, int]:
    """Return how many allocations are in each state."""
    states: tuple[AllocationState, ...] = get_args(AllocationState)
    return {state: tx.count_allocations(task.id, state=state) for state in states}
