"""The life of a task as one table: what may happen in each state, who may do it, what follows."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple

from fedbourse.errors import Conflict, NotAllowed
from fedbourse.market.records import State

Role = Literal["buyer", "operator", "owner", "market"]
"""Owners act through their devices, and may withdraw with a token as well; the market acts by
itself (see ``scheduler``)."""


class Command(StrEnum):
    """What can happen to a task."""

    OPEN = "open"
    INTEREST = "interest"
    ANNOUNCE = "announce"
    PLAN = "plan"
    LEAVE = "leave"
    TICK = "tick"
    SETTLE = "settle"
    DECIDE = "decide"
    RESTART = "restart"
    TRAIN = "train"
    OPEN_ROUND = "open-round"
    UPDATE = "update"
    CLOSE_ROUND = "close-round"
    COMPLETE = "complete"
    CANCEL = "cancel"


class Rule(NamedTuple):
    """Who may do something, and the state that it leads to."""

    by: tuple[Role, ...]
    next: State


_STARTER: tuple[Role, ...] = ("buyer", "market")
_STOPPER: tuple[Role, ...] = ("buyer", "operator", "market")

LIFE: dict[tuple[State, Command], Rule] = {
    (State.DRAFT, Command.OPEN): Rule(("buyer",), State.OPEN),
    (State.DRAFT, Command.CANCEL): Rule(("buyer", "operator"), State.CANCELLED),
    (State.OPEN, Command.INTEREST): Rule(("owner",), State.OPEN),
    (State.OPEN, Command.LEAVE): Rule(("owner",), State.OPEN),
    (State.OPEN, Command.ANNOUNCE): Rule(_STARTER, State.ANNOUNCED),
    (State.OPEN, Command.CANCEL): Rule(_STOPPER, State.CANCELLED),
    (State.ANNOUNCED, Command.PLAN): Rule(("owner",), State.ANNOUNCED),
    (State.ANNOUNCED, Command.LEAVE): Rule(("owner",), State.ANNOUNCED),
    (State.ANNOUNCED, Command.TICK): Rule(("market",), State.ANNOUNCED),
    (State.ANNOUNCED, Command.SETTLE): Rule(("market",), State.SETTLED),
    (State.ANNOUNCED, Command.CANCEL): Rule(_STOPPER, State.CANCELLED),
    (State.SETTLED, Command.DECIDE): Rule(("owner",), State.SETTLED),
    (State.SETTLED, Command.RESTART): Rule(("market",), State.ANNOUNCED),
    (State.SETTLED, Command.TRAIN): Rule(_STARTER, State.TRAINING),
    (State.SETTLED, Command.CANCEL): Rule(_STOPPER, State.CANCELLED),
    (State.TRAINING, Command.OPEN_ROUND): Rule(_STARTER, State.TRAINING),
    (State.TRAINING, Command.UPDATE): Rule(("owner",), State.TRAINING),
    (State.TRAINING, Command.CLOSE_ROUND): Rule(("market",), State.TRAINING),
    (State.TRAINING, Command.COMPLETE): Rule(("market",), State.COMPLETED),
    (State.TRAINING, Command.CANCEL): Rule(_STOPPER, State.CANCELLED),
}

ENDED = frozenset({State.COMPLETED, State.CANCELLED})
ACTIVE = (State.OPEN, State.ANNOUNCED, State.SETTLED, State.TRAINING)
"""The states in which time counts."""


def after(state: State, command: Command, *, by: Role) -> State:
    """Return the state that follows, or refuse.

    >>> after(State.DRAFT, Command.OPEN, by="buyer").value
    'open'
    """
    rule = LIFE.get((state, command))
    if rule is None:
        states = [each.value for (each, other) in LIFE if other is command]
        raise Conflict(f"{command.value} needs a task that is {' or '.join(states)}; it is {state}")
    if by not in rule.by:
        raise NotAllowed(f"{command.value} is for the {' or '.join(rule.by)}; the caller is {by}")
    return rule.next


def diagram() -> str:
    """Return the table as a Mermaid state diagram."""
    rows = ["stateDiagram-v2", "    [*] --> draft"]
    for (state, command), rule in LIFE.items():
        who = ", ".join(rule.by)
        rows.append(f"    {state.value} --> {rule.next.value}: {command.value} ({who})")
    rows += [f"    {state.value} --> [*]" for state in State if state in ENDED]
    return "\n".join(rows)
