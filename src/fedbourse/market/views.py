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
from fedbourse.market import log
from fedbourse.market.accounts import visible_escrow
from fedbourse.market.log_summary import summary_of
from fedbourse.market.selling import offered_terms
from fedbourse.market.service import show, was_opened
from fedbourse.market.task import State
from fedbourse.wire.canonical import canonical
from fedbourse.wire.messages import participation_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedbourse.market.log import Event
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.service import Market
    from fedbourse.market.task import Line, Round, Task, TickReply

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


def tasks(
    unit: Unit, caller: Caller | None, *, state: State | None, before: str | None, limit: int
) -> Document:
    """Return tasks, newest first; drafts only to their buyer, the operator and auditors."""
    states = [each for each in State if state in (None, each)]
    if caller is not None and caller.scopes & {"operator", "auditor"}:
        found = unit.tasks(states=states, before=before, limit=limit)
    else:
        drafts = [each for each in states if each is State.DRAFT]
        public = [each for each in states if each is not State.DRAFT]
        found = unit.tasks(states=public, before=before, limit=limit) if public else []
        if drafts and caller is not None:
            own = unit.tasks(states=drafts, buyer=caller.party, before=before, limit=limit)
            found = sorted([*found, *own], key=lambda task: task.id, reverse=True)[:limit]
    last = found[-1].id if len(found) == limit else None
    if caller is None or not caller.scopes & {"operator", "auditor"}:
        found = [task for task in found if was_opened(task) or _is_buyer(caller, task)]
    return {"tasks": [task_document(task) for task in found], "next": last}


def one_task(unit: Unit, caller: Caller | None, task_id: str) -> Document:
    """Return what everybody may see of one task; while it is open, how many are interested."""
    task = show(unit.task(task_id), caller)
    document = task_document(task)
    if task.state is State.OPEN:
        document["interested"] = unit.count_interests(task.id)
    return document


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


def _is_buyer(caller: Caller | None, task: Task) -> bool:
    return caller is not None and caller.party == task.buyer


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
    leaves = [each.leaf for each in unit.lines(task.id)]
    return {
        "leaf": line.leaf,
        "position": line.position,
        "path": list(log.proof(leaves, line.position)),
        "root": log.root(leaves),
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


def round_answers(unit: Unit, caller: Caller, task_id: str, *, round: int) -> Document:
    """Return who answered a round, with the hash of each answer: for auditors and the operator."""
    caller.require("auditor", "operator")
    found = unit.answers(unit.round(unit.task(task_id).id, round).task, round)
    return {"answers": [{"owner": answer.owner, "hash": answer.hash} for answer in found]}


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


_MOVES = {"escrow": "held", "released": "released", "refund": "refunded", "fund": "fund"}
"""What transfers of escrow are for, by the end of their id; all others pay owners."""


def _money(unit: Unit, caller: Caller, task: Task) -> dict[str, int]:
    """Return where a task's money is: to its buyer, as of the last closed round."""
    ids = {f"{task.id}/{end}": name for end, name in _MOVES.items()}
    moved = unit.moved(ids)
    money = {name: int(moved.get(id, 0)) for id, name in ids.items()}
    money["held"] -= money["released"]
    left = int(visible_escrow(unit, caller, task))
    spent = money["refunded"] + money["fund"] + left
    return money | {"earned": money["held"] - spent, "escrow": left}


def report(unit: Unit, caller: Caller, task_id: str) -> Document:
    """Return the totals of a task: for its buyer, auditors and the operator.

    Money is shown to the buyer as of the last closed round, as ``visible_escrow`` says.
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
        "money_micro": _money(unit, caller, task),
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
