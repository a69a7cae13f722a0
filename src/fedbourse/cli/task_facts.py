"""A task, its card and its log as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedbourse.cli.output import credits_or_dash, moment
from fedbourse.units import credits_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedbourse.market.log_summary import LogSummary, Settlement

_MONEY_WORDS = {
    "held": "held",
    "released": "released at the announcement",
    "earned": "earned by owners",
    "refunded": "refunded",
    "fund": "to the fund",
    "escrow": "in escrow",
}


def task_facts(task: Mapping[str, Any]) -> dict[str, object]:
    """Return what everybody may see of a task."""
    total = task["total_budget"]
    facts: dict[str, object] = {
        "task": task["task"],
        "state": task["state"],
        "buyer": task["buyer"],
        "goal": task["goal"],
        "made": f"{moment(task['created_ms'])} UTC",
        "until": f"{moment(task['deadline_ms'])} UTC" if task["deadline_ms"] else "-",
        "reward": credits_or_dash(task["reward_micro"]),
        "interested": task["interested"] or "-",
        "total budget": "-" if total is None else f"{total:.6g} rho, tick {task['tick']}",
        "round": f"{task['round']} of {task['rounds']}",
        "events": f"{task['events']}, the last with the hash {task['last_hash']}",
    }
    if task["reference_ends_ms"]:
        ends = moment(task["reference_ends_ms"])
        facts["waits"] = f"for the buyer's reference gradient until {ends} UTC"
    if task["review_ends_ms"]:
        facts["review"] = review_words(task["review_ends_ms"])
    return facts


def review_words(ends_ms: int) -> str:
    """Return what the time for review means."""
    return f"training starts at {moment(ends_ms)} UTC; until then the buyer may still cancel"


def discovery_facts(
    *, settlement: Settlement | None, out: Mapping[str, int], restarts: int
) -> dict[str, object]:
    """Return how the price was found, and who is out."""
    from fedbourse.market.log_summary import out_words

    again = "once" if restarts == 1 else f"{restarts} times"
    return {
        "settled": "-" if settlement is None else settlement.words,
        "out": out_words(out),
        **({"discovered again": f"{again}, without those who did not sign"} if restarts else {}),
    }


def log_facts(log: LogSummary) -> dict[str, object]:
    """Return what a task's log says beyond its state."""
    facts = discovery_facts(settlement=log.settlement, out=log.out_counts, restarts=log.restarts)
    if log.reserved_micro:
        facts["reserved"] = f"{credits_text(log.reserved_micro)} credits when it opened"
    if log.ended_ms is not None:
        moves = {"refunded": log.refunded_micro, "fund": log.fund_micro}
        facts["at the end"] = money_words(moves) + " credits"
    return facts | ({"why": log.reason} if log.reason else {})


def card_facts(card: Mapping[str, Any], fund: Mapping[str, str]) -> dict[str, object]:
    """Return a card's items in words, what its rules of pay invite, and the fund."""
    from fedbourse.tasks.incentives import incentive_of

    try:
        invites = incentive_of(vesting=card["vesting"], unearned=card["unearned"])
    except KeyError:  # a rule of another version
        invites = "not known to this version"
    facts: dict[str, object] = {name: worded(card[name]) for name in _in_order(card)}
    return facts | {
        "rules of pay": invites,
        "fund": f"account {fund['account']}, paid out to {fund['pays_to']}",
    }


def money_words(money: Mapping[str, int]) -> str:
    """Return where a task's money is.

    >>> money_words({"refunded": 1_500_000, "fund": 0})
    '1.500000 refunded, 0.000000 to the fund'
    """
    return ", ".join(
        f"{credits_text(money[name])} {words}"
        for name, words in _MONEY_WORDS.items()
        if name in money
    )


def worded(value: object) -> str:
    """Return an item of a card or an event in words."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {worded(part)}" for name, part in value.items())
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _in_order(card: Mapping[str, Any]) -> list[str]:
    """Return the items of a card as its record has them; those that it does not know come last."""
    from dataclasses import fields

    from fedbourse.tasks.card import TaskCard

    listed = [field.name for field in fields(TaskCard) if field.name in card]
    return listed + [name for name in card if name not in listed]
