"""Where the reward comes from, and the first total that is announced."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game import Accuracy, Training, Uniform, best_reward, equilibrium
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, MicroCredits

if TYPE_CHECKING:
    from fedbourse.game import ExpectedOffer, Offer
    from fedbourse.game.columns import FloatArray
    from fedbourse.wire.card import TaskCard

REWARD_MICRO_MAX = 2**53 - 1


def training_of(card: TaskCard) -> Training:
    """Return the card's training as the game sees it."""
    return Training(
        dimension=card.dimension,
        step_size=card.step_size,
        iterations=card.rounds,
        samples=card.samples,
        clip=card.clip,
    )


def accuracy_of(card: TaskCard) -> Accuracy:
    """Return how the card's buyer assumes that budgets buy accuracy."""
    said = card.assumed
    return Accuracy(said.accuracy, chance=said.chance, ceiling=said.ceiling, noise=said.noise)


def choose_reward(
    card: TaskCard, *, interested: int, reported: FloatArray | None = None
) -> tuple[MicroCredits, str]:
    """Return the reward in whole micro-credits, and where it comes from.

    ``reported`` are the values that owners told, for a card that wants the best reward for them.
    """
    if card.reward == "best":
        amount = _best(card, interested, None)
        said = card.assumed
        method = (
            f"best for {interested} values spread evenly over {said.values_low:g} to "
            f"{said.values_high:g}, by the accuracy model {said.accuracy}"
            f"{', not calibrated' if said.noise == 1 else ''}"
        )
    elif card.reward == "best-reported":
        told = 0 if reported is None else len(reported)
        if told < 2:
            raise InvalidGame(
                f"the best reward for reported values needs two of them; found {told}"
            )
        amount = _best(card, told, reported)
        method = f"best for {told} reported values; owners can manipulate it"
    else:
        amount, method = float(card.reward), "as the card says"
    if card.max_reward is not None and amount > card.max_reward:
        amount, method = card.max_reward, f"{method}, but not above the card's max_reward"
    return _micro(amount), method


def first_total(card: TaskCard, values: FloatArray, *, reward: float, interested: int) -> float:
    """Return the total budget to announce first.

    Where everybody has reported a value it is the equilibrium's; else a guess that the ticks mend:
    the equilibrium of as many owners whose values lie evenly spread over what the card assumes.
    """
    known = values[~np.isnan(values)]
    if len(known) == interested >= 2:
        return equilibrium(known, reward=reward).total_budget
    low, high = (
        (1.0, 5.0)
        if card.assumptions is None
        else (card.assumptions.values_low, card.assumptions.values_high)
    )
    spread = low + (high - low) * (np.arange(max(interested, 2)) + 0.5) / max(interested, 2)
    return equilibrium(spread, reward=reward).total_budget


def _best(card: TaskCard, owners: int, reported: FloatArray | None) -> float:
    said = card.assumed
    training, accuracy = training_of(card), accuracy_of(card)
    offer: Offer | ExpectedOffer
    if reported is None:
        values = Uniform(said.values_low, said.values_high)
        offer = best_reward(values, training, weight=said.weight, accuracy=accuracy, owners=owners)
    else:
        offer = best_reward(reported, training, weight=said.weight, accuracy=accuracy)
    if not offer.reward:
        raise InvalidGame(
            f"no reward pays at a weight of {said.weight:g} under the accuracy model "
            f"{said.accuracy!r}; give a reward, or a larger weight"
        )
    return float(offer.reward)


def _micro(amount: float) -> MicroCredits:
    if not math.isfinite(amount) or amount * MICRO_CREDITS_PER_CREDIT > REWARD_MICRO_MAX:
        raise InvalidGame(f"reward must be below {2**53 / 1e6:g} credits; found {amount:g}")
    reward = MicroCredits(round(amount * MICRO_CREDITS_PER_CREDIT))
    if reward < 1:
        raise InvalidGame(f"reward must be at least one micro-credit, 0.000001; found {amount:g}")
    return reward
