"""What a budget earns and what it risks, before an owner sells anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidInput
from fedbourse.game import Uniform, equilibrium, share_at
from fedbourse.privacy.loss import PrivacyLoss
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, number

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from fedbourse.wire.card import TaskCard

_STEPS = 12


@dataclass(frozen=True)
class Choice:
    """One budget, and what it would mean."""

    budget: float
    """rho."""
    pay: float
    """Credits for all rounds."""
    epsilon_one_record: float
    """What somebody may learn about one record, at delta 1e-5."""
    epsilon_whole_owner: float | None
    """What somebody may learn about all of the owner's records together; None: anything."""
    cap_share: float
    """The part of the lifetime cap, in rho."""
    utility: float
    """Pay less what the privacy is worth to the owner, in credits."""


@dataclass(frozen=True)
class Advice:
    """A range of budgets for one task."""

    reward: float
    """R, in credits."""
    others: float
    """rho that all others sell, as far as can be told."""
    choices: tuple[Choice, ...]
    best: Choice
    left: float
    """rho that the lifetime cap leaves."""
    basis: str
    """Where ``others`` comes from, in words."""


def advise(
    card: TaskCard,
    task: dict[str, Any],
    *,
    value: float,
    lifetime_cap: float,
    left: float,
    budgets: Sequence[float] | None = None,
) -> Advice:
    """Return what budgets would earn in a task as it stands."""
    reward, others, basis = _offer(card, task, value)
    most = min(card.max_rho, left)

    def choice(budget: float) -> Choice:
        pay = reward * budget / (budget + others) if budget else 0.0
        loss = PrivacyLoss.of(budget, samples=card.samples)
        return Choice(
            budget=budget,
            pay=pay,
            epsilon_one_record=loss.epsilon_one_record,
            epsilon_whole_owner=loss.document()["epsilon_whole_owner"],
            cap_share=budget / lifetime_cap,
            utility=pay - value * budget,
        )

    # The root of d/dr (R r/(r+Q) - v r) = 0.
    reply = max(0.0, (reward * others / value) ** 0.5 - others)
    best = choice(min(reply, most))
    if budgets is None:
        top = min(most, max(2.5 * reply, 1e-3 * most))
        budgets = [top * step / _STEPS for step in range(1, _STEPS + 1)] if top else []
    chosen = sorted({*(number("budget", b, at_least=0) for b in budgets), best.budget})
    return Advice(reward, others, tuple(map(choice, chosen)), best, left, basis)


def _offer(card: TaskCard, task: dict[str, Any], value: float) -> tuple[float, float, str]:
    """Return R, what others sell, and how that is known."""
    if task["total_budget"] is not None:
        reward = number("reward_micro", task["reward_micro"], above=0) / MICRO_CREDITS_PER_CREDIT
        total = number("total_budget", task["total_budget"], above=0)
        others = total * (1.0 - share_at(value, total, reward=reward))
        return reward, others, f"the market announces a total of {total:.6g} at tick {task['tick']}"
    if isinstance(card.reward, str):
        raise InvalidInput(
            "the reward is not announced yet, and the card fixes none; ask again once it is"
        )
    reward, owners = float(card.reward), max(2, int(task["interested"] or 0))
    rivals = "one other" if owners == 2 else f"{owners - 1} others"
    if card.assumptions is not None:
        low, high = card.assumptions.values_low, card.assumptions.values_high
        spread = Uniform(low, high).spread(owners - 1)
        basis = f"{rivals} with values from {low:g} to {high:g}, as the buyer assumes"
    else:
        spread = np.full(owners - 1, value)
        basis = f"nothing is announced yet: {rivals} with a value like yours"
    found = equilibrium(np.append(spread, value), reward=reward)
    return reward, float(found.dense()[:-1].sum()), basis
