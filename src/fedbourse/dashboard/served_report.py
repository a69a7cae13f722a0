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
from fedbourse.market.offers import predicted_accuracy
from fedbourse.market.service import escrow
from fedbourse.privacy.zcdp import DELTA, whole_owner
from fedbourse.version import __version__
from fedbourse.wire.messages import privacy_terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedbourse.market.log_summary import LogSummary
    from fedbourse.market.task import Line, Task
    from fedbourse.market.view import View

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


def served_report(view: View, task_id: str) -> Document:
    """Return what happened in a task that has ended, as far as the reader may know it."""
    task, log = view.task(task_id), view.log(task_id)
    if task.state not in ENDED or log.signed is None or log.settlement is None:
        raise Conflict(
            f"a report needs a trade that was trained and has ended; this task is {task.state}"
        )
    trained = [each for each in view.lines(task.id) if each.state == "signed"]
    shown = [_owner(task, each) for each in trained[:OWNERS_SHOWN]]
    budgets = [owner["budget"] for owner in shown if owner["budget"] is not None]
    return {
        "version": __version__,
        "origin": {
            "task": task.id,
            "buyer": task.buyer,
            "ended": task.state.value,
            "log": f"{task.last_sequence + 1} events, the last with the hash {task.last_hash}",
        },
        "card": asdict(task.card) | {"digest": task.card.digest},
        "interested": task.interested,
        "participants": log.signed,
        "declined": [_struck_out(log.struck_out)] if log.struck_out else [],
        "out": log.out_counts,
        "restarts": log.restarts,
        "reward_method": log.offers[0]["method"],
        "weight": None,
        "settlement": log.settlement.words,
        "regret": None,
        "announcements": [each["total_budget"] for each in log.offers],
        "total_budget": log.settlement.total_budget,
        "delta": DELTA,
        "whole_owner_budget": whole_owner(max(budgets), samples=task.card.samples)
        if budgets and view.sees_all
        else None,
        "owners": shown or None,
        "owners_left_out": max(0, len(trained) - OWNERS_SHOWN),
        "owners_hidden": log.signed - len(trained) if shown else 0,
        "rounds": [asdict(each) for each in view.closed_rounds(task.id)],
        "accuracy": _accuracy(task, trained if view.sees_all else ()),
        "money": _money(view, task, log),
        "transfers": _transfers(view, task) if view.sees_all else None,
        "unknown": [_NO_ACCURACY, _NO_VALUES, *([] if shown else [_NO_LINES])],
    }


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


def _money(view: View, task: Task, log: LogSummary) -> Document:
    """Return where the reward went, all of which the public log says."""
    reward = task.reward or 0
    held = view.escrow_in_the_end(task)
    return {
        "reward_micro": reward,
        "payments_micro": reward,
        "released_micro": log.released_micro,
        "earned_micro": reward - log.refunded_micro - log.fund_micro - held,
        "refunded_micro": log.refunded_micro,
        "fund_micro": log.fund_micro,
        "escrow_micro": held,
        "transfers": view.count_payments(task),
    }


def _transfers(view: View, task: Task) -> list[Document]:
    found = view.statement(escrow(task.id), after=0, limit=_TRANSFERS_SHOWN)
    return [asdict(entry) for entry in found]


def _struck_out(count: int) -> str:
    who = "one owner" if count == 1 else f"{count} owners"
    return f"{who} did not sign the terms; the price was discovered again without them"
