"""What the service answers about tasks: cards, states, events and totals."""

from __future__ import annotations

from typing import Any, Literal

from fedbourse.market.task import State  # noqa: TC001 - pydantic reads them
from fedbourse.web import cards
from fedbourse.web.bodies import HASH, MS, SIGNATURE, TASK, Body, example
from fedbourse.web.market_documents import FUND, Fund

_TASK: dict[str, Any] = {
    "task": TASK,
    "state": "announced",
    "buyer": "buyer:acme",
    "card": HASH,
    "goal": "will a flight arrive late?",
    "data": "flights of one airline",
    "created_ms": MS,
    "deadline_ms": MS + 3_600_000,
    "reward_micro": 10_000_000,
    "interested": 24,
    "tick": 3,
    "tick_ends_ms": MS + 60_000,
    "total_budget": 1.5,
    "settled_tick": None,
    "review_ends_ms": None,
    "offer": HASH,
    "round": 0,
    "rounds": 100,
    "events": 6,
    "last_hash": HASH,
    "state_signature": SIGNATURE,
}
_EVENT: dict[str, Any] = {
    "task": TASK,
    "sequence": 1,
    "kind": "opened",
    "at_ms": MS,
    "body": {
        "deadline_ms": MS + 86_400_000,
        "reserved_micro": 10_000_000,
        "fund": FUND,
        "opening": 0,
        "previous_opening": "",
        "state": "open",
    },
    "previous": HASH,
    "hash": HASH,
}
_SETTLEMENT: dict[str, Any] = {
    "tick": 5,
    "converged": True,
    "regret_bound": 1e-9,
    "total_budget": 1.49,
    "owners": 22,
}
_OUT = {"left": 0, "missed": 1, "struck_out": 1}


class TaskDocument(Body):
    """What everybody may see of a task, but its card."""

    model_config = example(**_TASK)
    task: str
    state: State
    buyer: str
    card: str
    """The card's hash."""
    goal: str
    data: str
    created_ms: int
    deadline_ms: int | None
    """When the state ends by itself."""
    reward_micro: int | None
    """R, from the announcement on."""
    interested: int | None
    tick: int
    tick_ends_ms: int | None
    total_budget: float | None
    """P, as announced at this tick."""
    settled_tick: int | None
    """The tick whose replies are the plans."""
    review_ends_ms: int | None
    """When training starts, once everybody has signed: until then the buyer may cancel."""
    offer: str | None
    """The hash of the last offer, which plans refer to."""
    round: int
    rounds: int
    events: int
    last_hash: str
    """The end of the event log."""
    state_signature: str
    """The market's, of the message of kind task-state: task, card, state, sequence (events - 1),
    last_hash, tick, total_budget, reward_micro and offer. It is made once, with the last event."""


class TaskPage(Body):
    """Tasks, newest first."""

    model_config = example(tasks=[_TASK], next=None)
    tasks: list[TaskDocument]
    next: str | None
    """``before`` of the next page."""


class PublishedCard(Body):
    """A card, its hash, and the fund that its unearned pay may go to."""

    model_config = example(card=cards.FULL_EXAMPLE, digest=HASH, fund=FUND)
    card: cards.CardDocument
    digest: str
    fund: Fund
    """As it was pinned in the log when the task opened; of a draft, as it is now."""


class EventDocument(Body):
    """One thing that happened to a task."""

    model_config = example(**_EVENT)
    task: str
    sequence: int
    kind: str
    at_ms: int
    body: dict[str, Any]
    previous: str
    """The hash of the event before; the card's for the first."""
    hash: str


class EventPage(Body):
    """Events in order."""

    model_config = example(events=[_EVENT], next=None)
    events: list[EventDocument]
    next: int | None
    """``after`` of the next page."""


class Participants(Body):
    """How many lines are in each state."""

    model_config = example(offered=0, signed=22, declined=0)
    offered: int
    signed: int
    declined: int


class SettlementDocument(Body):
    """Where price discovery ended."""

    model_config = example(**_SETTLEMENT)
    tick: int
    """The lowest announced total whose replies sum to at most it."""
    converged: bool
    """Whether P had converged; otherwise the task settled by rule."""
    regret_bound: float
    """The most that an owner could gain by another budget while the others keep theirs, credits."""
    total_budget: float
    """rho that is sold, by all owners together."""
    owners: int
    """How many have terms."""


class OutCounts(Body):
    """How many owners are out of a task, by the reason."""

    model_config = example(**_OUT)
    left: int
    """By their own wish."""
    missed: int
    """They did not reply to a tick."""
    struck_out: int
    """They declined their terms, or did not sign them in time."""


class Money(Body):
    """Where the reward is, in micro-credits."""

    model_config = example(
        held=10_000_000, released=0, refunded=0, fund=5_000, earned=95_000, escrow=9_900_000
    )
    held: int
    """The reward; before it is announced, what was reserved."""
    released: int
    """What was reserved beyond the reward, and went back when it was announced."""
    refunded: int
    """What went back to the buyer at the end."""
    fund: int
    """The pay of rounds that were not delivered."""
    earned: int
    """What owners were paid."""
    escrow: int
    """What is still held."""


class TaskReport(TaskDocument):
    """The totals of a task."""

    model_config = example(
        **_TASK,
        card_document=cards.FULL_EXAMPLE,
        participants={"offered": 0, "signed": 22, "declined": 0},
        settlement=_SETTLEMENT,
        out=_OUT,
        restarts=1,
        money_micro={
            "held": 10_000_000,
            "released": 0,
            "refunded": 0,
            "fund": 5_000,
            "earned": 95_000,
            "escrow": 9_900_000,
        },
        refused_answers={"late": 1},
        rounds_closed=[],
    )
    card_document: cards.CardDocument
    participants: Participants
    settlement: SettlementDocument | None
    out: OutCounts
    restarts: int
    """How often the price was discovered again without owners who were struck out."""
    money_micro: Money
    refused_answers: dict[str, int]
    """How many answers earned nothing, by reason."""
    rounds_closed: list[dict[str, Any]]
    """The bodies of the log's events of rounds."""


class ModelWhatIf(Body):
    """What rewards would buy, by one accuracy model."""

    model_config = example(
        model="precision",
        accuracy=[0.8613, 0.8971],
        utility=[16.226, 15.942],
        best_reward=1.32,
        best_utility=16.31,
    )
    model: str
    accuracy: list[float]
    """One for each reward."""
    utility: list[float]
    """The buyer's, in credits: weight times accuracy, less the reward."""
    best_reward: float
    """The best of all rewards, in credits; 0 where none pays."""
    best_utility: float


class WhatIfDocument(Body):
    """What rewards would buy. A number that rests on owners' values is shown rounded."""

    model_config = example(
        task=TASK,
        basis="assumed",
        why="24 owners with values spread evenly over 1 to 5: 3 of 24 told theirs, 5 are needed",
        owners=24,
        participants=7,
        rewards=[1.0, 2.0],
        total_budgets=[0.41, 0.82],
        models=[
            {
                "model": "precision",
                "accuracy": [0.8613, 0.8971],
                "utility": [16.226, 15.942],
                "best_reward": 1.32,
                "best_utility": 16.31,
            }
        ],
    )
    task: str
    basis: Literal["reported", "assumed"]
    why: str
    """Whose values it rests on, and why."""
    owners: int
    participants: int
    """How many owners would take part, at every reward."""
    rewards: list[float]
    """In credits."""
    total_budgets: list[float]
    """P, one for each reward."""
    models: list[ModelWhatIf]
