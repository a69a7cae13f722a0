"""What each caller may see, as plain documents.

Everybody sees the card, R, P and the number of participants; an owner its own line; the buyer the
totals and the model; auditors and the operator every line. Nobody else sees any owner's value or
plan.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fedbourse.errors import Conflict, NotFound
from fedbourse.market import merkle
from fedbourse.market.accounts import may_see
from fedbourse.market.log_summary import summary_of
from fedbourse.market.selling import offered_terms
from fedbourse.market.service import show
from fedbourse.market.task import State, promised_micro
from fedbourse.market.task_money import money_of, visible_escrow
from fedbourse.wire.canonical import canonical
from fedbourse.wire.messages import participation_message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fedbourse.market.log import Event
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.service import Market
    from fedbourse.market.task import Line, Round, Task, TaskOrder, TickReply
    from fedbourse.units import MicroCredits

Document = dict[str, Any]


def task_document(task: Task) -> Document:
    """Return what everybody may see of a task, but its card."""
    return {
        "task": task.id,
        "state": task.state.value,
        "buyer": task.buyer,
        "card": task.card.digest,
        "goal": task.card.goal,
        "data": task.card.data,
        "created_ms": task.created_ms,
        "deadline_ms": task.deadline_ms,
        "reward_micro": task.reward,
        "interested": task.interested or None,
        "tick": task.tick,
        "tick_ends_ms": task.tick_ends_ms,
        "total_budget": task.total_budget,
        "settled_tick": task.settled_tick,
        "review_ends_ms": task.review_ends_ms,
        "offer": task.offer or None,
        "round": task.round,
        "rounds": task.card.rounds,
        "events": task.last_sequence + 1,
        "last_hash": task.last_hash,
        "state_signature": task.state_signature,
    }


def task_documents(unit: Unit, found: Sequence[Task]) -> list[Document]:
    """Return what everybody may see of tasks; of open ones, how many are interested too."""
    counts = unit.counts_of_interests([task.id for task in found if task.state is State.OPEN])
    return [
        task_document(task)
        | ({"interested": counts.get(task.id, 0)} if task.state is State.OPEN else {})
        for task in found
    ]


def tasks(
    unit: Unit, caller: Caller | None, *, state: State | None, before: str | None, limit: int
) -> Document:
    """Return tasks, newest first; those never opened only to their buyer, operator and auditors."""
    found = unit.tasks(
        states=() if state is None else (state,),
        seen_by=_drafts_of(caller),
        before=before,
        limit=limit,
    )
    last = found[-1].id if len(found) == limit else None
    return {"tasks": task_documents(unit, found), "next": last}


def found_tasks(
    unit: Unit,
    caller: Caller | None,
    *,
    state: State | None,
    words: Sequence[str],
    order: TaskOrder,
    page: int,
    rows: int,
) -> tuple[list[Document], int]:
    """Return one page of the tasks that mention all words, and how many there are."""
    seen_by, states = _drafts_of(caller), () if state is None else (state,)
    found = unit.search_tasks(
        states=states, seen_by=seen_by, words=words, order=order, skip=(page - 1) * rows, limit=rows
    )
    count = unit.count_tasks(states=states, seen_by=seen_by, words=words)
    documents = task_documents(unit, found)
    for document, task in zip(documents, found, strict=True):
        document["reward"] = promised(task)
    return documents, count


def promised(task: Task) -> Document:
    """Return the reward as it is known now: fixed, said by the card, or still to be computed."""
    if task.reward is not None:
        return {"micro": task.reward, "fixed": True}
    return {"micro": promised_micro(task.card), "fixed": False}


def _drafts_of(caller: Caller | None) -> str | None:
    """Return whose tasks are seen before they are opened; None where all are."""
    if caller is None:
        return ""
    return None if caller.scopes & {"operator", "auditor"} else caller.party


def one_task(unit: Unit, caller: Caller | None, task_id: str) -> Document:
    """Return what everybody may see of one task; while it is open, how many are interested."""
    task = show(unit.task(task_id), caller)
    return task_documents(unit, [task])[0]


def published_card(market: Market, unit: Unit, caller: Caller | None, task_id: str) -> Document:
    """Return a task's card with its hash, and the fund as it was pinned when the task opened.

    Of a task that was never opened it is the fund as the market publishes it now.
    """
    task = show(unit.task(task_id), caller)
    first = unit.events(task.id, limit=2)
    pinned = [event.body["fund"] for event in first if event.kind == "opened"]
    return {
        "card": task.card.document,
        "digest": task.card.digest,
        "fund": pinned[0] if pinned else market.fund,
    }


def event_document(event: Event) -> Document:
    """Return an event as the log holds it: all of it is public."""
    return asdict(event)


def mine(market: Market, unit: Unit, caller: Caller, task_id: str) -> Document:
    """Return all that the market keeps of one owner in one task."""
    caller.require("owner")
    task = show(unit.task(task_id), caller)
    interest = unit.interest(task.id, caller.party)
    replies = unit.replies_of(task.id, caller.party)
    line = unit.line(task.id, caller.party)
    last = unit.last_answer(task.id, caller.party)
    gone = unit.exit(task.id, caller.party)
    terms = offered_terms(market, task, line) if line and line.budget is not None else None
    message = participation_message(
        task=task.id,
        owner=caller.party,
        sequence=task.last_sequence,
        line=line.state if line else None,
        terms=terms["digest"] if terms else None,
        exit=gone.reason if gone else None,
    )
    return {
        "task": task.id,
        "owner": caller.party,
        "interest": asdict(interest) if interest else None,
        "plan": _plan(task, replies),
        "replies": [asdict(reply) for reply in replies],
        "exit": asdict(gone) if gone else None,
        "line": line_entry(line) if line else None,
        "terms": terms,
        "receipt": json.loads(last.receipt) if last else None,
        "sequence": task.last_sequence,
        "signature": market.key.sign(canonical(message)),
    }


def proof(unit: Unit, caller: Caller, task_id: str) -> Document:
    """Return the path that leads from an owner's line to the root in the log."""
    caller.require("owner")
    task = show(unit.task(task_id), caller)
    line = unit.line(task.id, caller.party)
    if line is None:
        raise NotFound(f"{caller.party} has no line in task {task.id}")
    leaves = unit.last_position(task.id) + 1
    path, root = merkle.neighbours(line.position, leaves=leaves)
    nodes = unit.nodes(task.id, [*filter(None, path), root])
    block = unit.leaves_near(line, merkle.block_of(line.position))
    found = merkle.stored_proof(block, line.position, leaves=leaves, nodes=nodes)
    return {
        "leaf": line.leaf,
        "position": line.position,
        "path": list(found),
        "root": nodes[root],
    }


def _plan(task: Task, replies: list[TickReply]) -> Document | None:
    """Return the reply that counts: to the tick that was settled at, else the last one."""
    counting = [reply for reply in replies if task.settled_tick in (None, reply.tick)]
    return asdict(counting[-1]) if counting else None


def line_entry(line: Line) -> Document:
    """Return a line of the settlement, with what it has earned so far."""
    entry = asdict(line)
    for name in ("payment", "earned", "held"):
        entry[f"{name}_micro"] = entry.pop(name)
    return entry


def everybody(unit: Unit, caller: Caller, task_id: str, *, after: str, limit: int) -> Document:
    """Return what owners said and were promised, in full: for auditors and the operator."""
    caller.require("auditor", "operator")
    task = unit.task(task_id)
    interests = unit.interests(task.id, after=after, limit=limit)
    last = interests[-1].owner if interests else after
    names = [each.owner for each in interests]
    replies, exits = unit.replies(task.id, names), unit.exits(task.id, names)
    lines = {line.owner: line_entry(line) for line in unit.lines(task.id, after=after, limit=limit)}
    owners = [
        {
            "owner": each.owner,
            "interest": asdict(each),
            "replies": [asdict(reply) for reply in replies.get(each.owner, [])],
            "exit": asdict(exits[each.owner]) if each.owner in exits else None,
            "line": lines.get(each.owner),
        }
        for each in interests
    ]
    return {"owners": owners, "next": last if len(interests) == limit else None}


def round_answers(
    unit: Unit, caller: Caller, task_id: str, *, round: int, after: str, limit: int
) -> Document:
    """Return who answered a round, with the hash of each answer: for auditors and the operator."""
    caller.require("auditor", "operator")
    task = unit.task(task_id)
    if not unit.has_round(task.id, round):
        raise NotFound(f"task {task.id} has no round {round}")
    found = unit.answers(task.id, round, after=after, limit=limit)
    return {
        "answers": [{"owner": answer.owner, "hash": answer.hash} for answer in found],
        "next": found[-1].owner if len(found) == limit else None,
    }


def query(unit: Unit, caller: Caller, task_id: str, *, after: int) -> Round | None:
    """Return the open round to an owner who signed; None where it is not after this one."""
    caller.require("owner")
    task = show(unit.task(task_id), caller)
    line = unit.line(task.id, caller.party)
    if line is None or line.state != "signed":
        raise NotFound(f"{caller.party} signed no terms of task {task.id}")
    if task.state is not State.TRAINING:
        raise Conflict(f"a round needs a task in training; it is {task.state.value}")
    return unit.round(task.id, task.round) if task.round > after else None


def visible_balance(unit: Unit, caller: Caller, account: str) -> MicroCredits:
    """Return what an account holds to those who ``may_see`` it; of an escrow, what they may."""
    kind, _, task_id = account.partition(":")
    if kind == "escrow":
        return visible_escrow(unit, caller, unit.task(task_id))
    may_see(caller, account)
    return unit.balance(account)


def report(unit: Unit, caller: Caller, task_id: str) -> Document:
    """Return the totals of a task: for its buyer, auditors and the operator.

    Money is shown to the buyer as ``task_money`` says.
    """
    task = show(unit.task(task_id), caller)
    if caller.party != task.buyer:
        caller.require("auditor", "operator")
    counts = {
        state: unit.count_lines(task.id, state=state) for state in ("offered", "signed", "declined")
    }
    log_summary = summary_of(unit, task.id)
    rounds = [
        event.body
        for event in unit.events(task.id, limit=10 * task.card.rounds + 1000)
        if event.kind == "round"
    ]
    return {
        **task_document(task),
        "card_document": task.card.document,
        "participants": counts,
        "settlement": log_summary.settlement and asdict(log_summary.settlement),
        "out": log_summary.out_counts,
        "restarts": log_summary.restarts,
        "money_micro": money_of(unit, caller, [task])[0].document,
        "refused_answers": _totals(unit.refused_answers(task.id)),
        "rounds_closed": rounds,
    }


def _totals(refused: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Return how many answers were refused for each reason, whosever they were."""
    total: Counter[str] = Counter()
    for reasons in refused.values():
        total.update(reasons)
    return dict(sorted(total.items()))


def model(unit: Unit, caller: Caller, task_id: str) -> Round:
    """Return the model of a completed task to its buyer."""
    task = show(unit.task(task_id), caller)
    if caller.party != task.buyer:
        caller.require("operator")
    if task.state is not State.COMPLETED:
        raise Conflict(f"the model needs a task that is completed; it is {task.state.value}")
    return unit.round(task.id, task.card.rounds)
