"""The report of a trade that this market carried out, as the document that ``report`` lays out.

It has the shape of ``market.report.trade_report``. Everybody gets what the public log says; an
owner its own line too, and auditors and the operator all lines and transfers. What the market does
not know, or the reader may not, is None, and ``unknown`` says so in words.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.errors import Conflict
from fedbourse.market.lifecycle import ENDED
from fedbourse.market.log_summary import summary
from fedbourse.market.offers import predicted_accuracy
from fedbourse.market.service import escrow, show
from fedbourse.privacy.zcdp import DELTA, whole_owner
from fedbourse.version import __version__
from fedbourse.wire.messages import privacy_terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedbourse.market.log_summary import LogSummary
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.task import Line, Task

OWNERS_SHOWN = 200
_TRANSFERS_SHOWN = 20
_NO_ACCURACY = (
    "How accurate the model is: the buyer judges it on records of its own, which the market never "
    "sees, and owners report no such number, for that would be unpaid privacy."
)
_NO_VALUES = (
    "What privacy is worth to each owner, unless it chose to tell, and how much of its lifetime "
    "cap it used: both stay on its device."
)
_NO_LINES = (
    "Who took part, and what each sold and was paid: only an owner itself, auditors and the "
    "operator see that."
)
Document = dict[str, Any]


def served_report(unit: Unit, caller: Caller | None, task_id: str) -> Document:
    """Return what happened in a task that has ended, as far as the reader may know it."""
    task = show(unit.task(task_id), caller)
    events = unit.events(task.id, limit=10 * task.card.rounds + 1000)
    log = summary((event.kind, event.at_ms, event.body) for event in events)
    if task.state not in ENDED or log.signed is None or log.settlement is None:
        raise Conflict(
            f"a report needs a trade that was trained and has ended; this task is {task.state}"
        )
    lines = _lines(unit, caller, task)
    trained = [each for each in lines or () if each.state == "signed"]
    shown = [_owner(task, each) for each in trained[:OWNERS_SHOWN]]
    budgets = [owner["budget"] for owner in shown if owner["budget"] is not None]
    rounds = [
        {"number": event.body["round"], "answers": event.body["answers"]}
        for event in events
        if event.kind == "round"
    ]
    offers = [each.body["offer"] for each in events if each.kind in ("announced", "ticked")]
    return {
        "version": __version__,
        "origin": {
            "task": task.id,
            "buyer": task.buyer,
            "ended": task.state.value,
            "log": f"{len(events)} events, the last with the hash {task.last_hash}",
        },
        "card": asdict(task.card) | {"digest": task.card.digest},
        "interested": task.interested,
        "participants": log.signed,
        "declined": [_struck_out(log.struck_out)] if log.struck_out else [],
        "out": log.out_counts,
        "restarts": log.restarts,
        "reward_method": offers[0]["method"],
        "weight": None,
        "settlement": log.settlement.words,
        "regret": None,
        "announcements": [each["total_budget"] for each in offers],
        "total_budget": log.settlement.total_budget,
        "delta": DELTA,
        "whole_owner_budget": whole_owner(max(budgets), samples=task.card.samples)
        if budgets and _sees_all(caller)
        else None,
        "owners": shown or None,
        "owners_left_out": max(0, len(trained) - OWNERS_SHOWN),
        "owners_hidden": log.signed - len(trained) if shown else 0,
        "rounds": rounds,
        "accuracy": _accuracy(task, trained if _sees_all(caller) else ()),
        "money": _money(unit, task, log),
        "transfers": _transfers(unit, task) if _sees_all(caller) else None,
        "unknown": [_NO_ACCURACY, _NO_VALUES, *([] if shown else [_NO_LINES])],
    }


def _sees_all(caller: Caller | None) -> bool:
    return caller is not None and bool(caller.scopes & {"auditor", "operator"})


def _lines(unit: Unit, caller: Caller | None, task: Task) -> list[Line] | None:
    """Return the lines of the settlement that the reader may see."""
    if caller is None:
        return None
    if _sees_all(caller):
        return unit.lines(task.id)
    own = unit.line(task.id, caller.party) if "owner" in caller.scopes else None
    return None if own is None else [own]


def _owner(task: Task, line: Line) -> Document:
    budget = line.budget
    spent = None if budget is None else budget * line.answered / task.card.rounds
    terms = None if budget is None else privacy_terms(task.card, task=task.id, budget=budget)
    return {
        "owner": line.owner,
        "budget": budget,
        "noise_scale": None if terms is None else terms.scale,
        "payment_micro": line.payment,
        "answered": line.answered,
        "earned_micro": line.earned,
        "spent": spent,
        "lifetime_cap": None,
        "cap_share": None,
    }


def _accuracy(task: Task, trained: Sequence[Line]) -> Document:
    """Return what the models predict, to those who may see every budget that this follows from."""
    assumed = task.card.assumptions
    budgets = np.array([each.budget or np.nan for each in trained])
    predicted = {}
    if assumed is not None and len(budgets) and not np.isnan(budgets).any():
        places = np.arange(len(budgets), dtype=np.int64)
        predicted = predicted_accuracy(task.card, budgets, places, interested=task.interested)
    return {
        "measured": None,
        "chance": None if assumed is None else assumed.chance,
        "ceiling": None if assumed is None else assumed.ceiling,
        "validation_records": None,
        "predicted": predicted,
        "references": {},
    }


def _money(unit: Unit, task: Task, log: LogSummary) -> Document:
    """Return where the reward went, all of which the public log says."""
    reward = task.reward or 0
    held = unit.balance(escrow(task.id))
    return {
        "reward_micro": reward,
        "payments_micro": reward,
        "released_micro": log.released_micro,
        "earned_micro": reward - log.refunded_micro - log.fund_micro - held,
        "refunded_micro": log.refunded_micro,
        "fund_micro": log.fund_micro,
        "escrow_micro": held,
        "transfers": unit.count_entries(escrow(task.id)),
    }


def _transfers(unit: Unit, task: Task) -> list[Document]:
    return [
        asdict(entry) for entry in unit.entries(account=escrow(task.id), limit=_TRANSFERS_SHOWN)
    ]


def _struck_out(count: int) -> str:
    who = "one owner" if count == 1 else f"{count} owners"
    return f"{who} did not sign the terms; the price was discovered again without them"
