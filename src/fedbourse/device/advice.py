"""What a budget earns and what it risks, before an owner sells anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidInput
from fedbourse.game import equilibrium, share_at
from fedbourse.privacy.loss import PrivacyLoss
from fedbourse.protocol.bounds import OWNERS_MAX
from fedbourse.tasks.held_pay import held_pay
from fedbourse.tasks.incentives import incentive
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, number

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from fedbourse.tasks.card import TaskCard
    from fedbourse.tasks.held_pay import HeldPay

_STEPS = 12


@dataclass(frozen=True)
class BudgetChoice:
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
    too_small: bool
    """Whether evidence surely cannot judge a device with this budget; False without evidence."""


@dataclass(frozen=True)
class Advice:
    """A range of budgets for one task."""

    reward: float
    """R, in credits."""
    others: float
    """rho that all others sell, by estimate."""
    choices: tuple[BudgetChoice, ...]
    best: BudgetChoice
    left: float
    """rho that the lifetime cap leaves."""
    basis: str
    """How ``others`` was estimated, in words."""
    reason: str
    """Why nothing is best to sell, in words; empty where something is."""
    incentive: str
    """What the card's rules of pay invite others to do, and what of the pay is held."""
    evidence: HeldPay | None
    """What is held, until when, and how likely it is lost; None where the card has no evidence."""


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
    reward, others, basis = _lots(card, task) if card.sells_lots else _offer(card, task, value)
    most, evidence = min(card.max_rho, left), held_pay(card)

    def choice(budget: float) -> BudgetChoice:
        pay = reward * budget / (budget + others) if budget else 0.0
        loss = PrivacyLoss.of(budget, samples=card.samples)
        return BudgetChoice(
            budget=budget,
            pay=pay,
            epsilon_one_record=loss.epsilon_one_record,
            epsilon_whole_owner=loss.document()["epsilon_whole_owner"],
            cap_share=budget / lifetime_cap,
            utility=pay - value * budget,
            too_small=evidence is not None and evidence.is_too_small(budget),
        )

    # The root of d/dr (R r/(r+Q) - v r) = 0; utility falls to both sides of it.
    reply = max(0.0, (reward * others / value) ** 0.5 - others)
    if card.sells_lots:
        reply, budgets = card.max_rho, [card.max_rho]
    best = choice(min(max(reply, card.min_budget), most))
    reason = _no_sale(card, reply=reply, most=most, best=best)
    if reason:
        best = choice(0.0)
    if budgets is None:
        top = min(most, max(2.5 * reply, 2.5 * card.min_budget, 1e-3 * most))
        steps = (top * step / _STEPS for step in range(1, _STEPS + 1))
        budgets = [step for step in steps if step >= card.min_budget] if top else []
    budgets = sorted({*(number("budget", b, at_least=0) for b in budgets), best.budget})
    choices = tuple(map(choice, budgets))
    return Advice(reward, others, choices, best, left, basis, reason, incentive(card), evidence)


def _no_sale(card: TaskCard, *, reply: float, most: float, best: BudgetChoice) -> str:
    """Return why nothing is best to sell; empty where ``best`` is worth it."""
    if not most:
        return "nothing is left of the lifetime cap"
    if card.min_budget > most:
        return (
            f"the card buys at least {card.min_budget:g} rho from an owner, and you can sell at "
            f"most {most:g}"
        )
    if best.utility > 0:
        return ""
    if card.sells_lots:
        return f"the lot is worth {-best.utility:.6g} credits more to you than its price"
    if reply and card.min_budget > reply:
        return (
            f"the card buys at least {card.min_budget:g} rho from an owner, which is worth "
            f"{-best.utility:.6g} credits more to you than its pay"
        )
    return "others sell for less than your privacy is worth to you"


def _lots(card: TaskCard, task: dict[str, Any]) -> tuple[float, float, str]:
    """Return R, the lots that it pays for beside one's own, and what the price of a lot is."""
    if task["total_budget"] is not None:
        reward = number("reward_micro", task["reward_micro"], above=0) / MICRO_CREDITS_PER_CREDIT
        total = number("total_budget", task["total_budget"], above=0)
        when = f"is at tick {task['tick']}, and falls while too many stay"
    else:
        reward, total = float(card.reward), card.min_participants * card.max_rho
        when = "starts at, once the task is announced; it falls while too many stay"
    price = reward * card.max_rho / total
    return reward, total - card.max_rho, f"{price:.6g} credits, which the price of a lot {when}"


def _offer(card: TaskCard, task: dict[str, Any], value: float) -> tuple[float, float, str]:
    """Return R, what others sell, and the basis of that estimate."""
    if task["total_budget"] is not None:
        reward = number("reward_micro", task["reward_micro"], above=0) / MICRO_CREDITS_PER_CREDIT
        total = number("total_budget", task["total_budget"], above=0)
        others = total * (1.0 - share_at(value, total, reward=reward))
        return reward, others, f"the market announces a total of {total:.6g} at tick {task['tick']}"
    if isinstance(card.reward, str):
        raise InvalidInput(
            "the reward is not announced yet, and the card fixes none; try again once it is"
        )
    reward = float(card.reward)
    owners = min(max(2, int(task["interested"] or 0)), OWNERS_MAX)
    rivals = "one other" if owners == 2 else f"{owners - 1} others"
    if card.assumptions is not None:
        spread = card.assumptions.values.spread(owners - 1)
        basis = f"{rivals} with values {card.assumptions.values_text}, as the buyer assumes"
    else:
        spread = np.full(owners - 1, value)
        basis = f"nothing is announced yet: {rivals} with a value like yours"
    budgets = equilibrium(np.append(spread, value), reward=reward).dense()
    return reward, float(budgets[:-1].sum()), basis
