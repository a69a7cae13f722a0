"""Where the reward comes from, and the first total that is announced."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game import (
    ACCURACY_MODELS,
    Accuracy,
    Chunk,
    Stream,
    Training,
    Uniform,
    best_reward,
    equilibrium,
    what_if,
)
from fedbourse.market.lot_clock import first_clock_total
from fedbourse.market.ports import AT_ONCE
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, REWARD_MAX, MicroCredits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fedbourse.game import ExpectedOffer, Offer
    from fedbourse.game.columns import FloatArray, IntArray
    from fedbourse.market.ports import Transaction
    from fedbourse.tasks.card import TaskCard


def training_of(card: TaskCard) -> Training:
    """Return the card's training as the game sees it."""
    return Training(
        dimension=card.dimension,
        step_size=card.step_size,
        iterations=card.rounds,
        samples=card.samples,
        clip=card.clip,
    )


def accuracy_of(card: TaskCard, model: str | None = None) -> Accuracy:
    """Return how the card's buyer assumes that budgets buy accuracy, or another model says it."""
    assumptions = card.assumed
    accuracy = Accuracy(
        assumptions.accuracy,
        chance=assumptions.chance,
        ceiling=assumptions.ceiling,
        noise=assumptions.noise,
        sampling=assumptions.sampling,
    )
    return accuracy if model is None else accuracy.by(model)


def predicted_accuracy(
    card: TaskCard, budgets: FloatArray, owners: IntArray, *, interested: int
) -> dict[str, float]:
    """Return the accuracy that each model predicts for the budgets that these owners sold."""
    precisions = training_of(card).precisions(budgets, owners)
    return {name: accuracy_of(card, name).of(precisions, interested) for name in ACCURACY_MODELS}


def reported_to(tx: Transaction, task_id: str, *, named: bool = False) -> Stream:
    """Return the values that owners reported, read from its records in the order of names.

    The chunks hold who they are where they are to be ``named``: an equilibrium keeps the names of
    all who take part, which costs more memory than their values.
    """
    columns = ("value", "owner") if named else ("value",)
    return value_stream(lambda: tx.columns("interests", task_id, *columns))


def value_stream(read: Callable[[], Iterable[tuple[tuple[Any, ...], ...]]]) -> Stream:
    """Return reported values from chunks of values or None, and maybe of owners' names."""

    def chunks() -> Iterator[Chunk]:
        for values, *owners in read():
            column = np.array(values, dtype=np.float64)  # None becomes NaN
            reported = ~np.isnan(column)
            names = np.array(owners[0], dtype=object)[reported] if owners else None
            if reported.any():
                yield Chunk(column[reported], names=names)

    return Stream(chunks)


def assumed_values(card: TaskCard, owners: int) -> Stream:
    """Return as many values, spread over what the card assumes; evenly over 1 to 5 by default."""
    assumed = card.assumptions
    values = assumed.values if assumed else Uniform(1.0, 5.0)
    return Stream(
        lambda: (
            values.spread(owners, start, min(start + AT_ONCE, owners))
            for start in range(0, owners, AT_ONCE)
        )
    )


def choose_reward(
    card: TaskCard, *, interested: int, reports: int = 0, reported: object = None
) -> tuple[MicroCredits, str]:
    """Return the reward in whole micro-credits, and where it comes from.

    ``reported`` are so many ``reports`` of values, a column or a stream, for a card that
    wants the best reward for them.
    """
    if card.reward == "best":
        amount = _best(card, interested, None)
        assumptions = card.assumed
        method = (
            f"best for {interested} values {assumptions.values_text}, by the accuracy model "
            f"{assumptions.accuracy}"
            f"{', not calibrated' if assumptions.noise == 1 else ''}"
        )
    elif card.reward == "best-reported":
        if reports < 2:
            raise InvalidGame(
                f"the best reward for reported values needs two of them; found {reports}"
            )
        amount = _best(card, reports, reported)
        method = f"best for {reports} reported values; owners can manipulate it"
    else:
        amount, method = float(card.reward), "as the card says"
    if card.max_reward is not None and amount > card.max_reward:
        amount, method = card.max_reward, f"{method}, but not above the card's max_reward"
    return micro_credits_of(amount), method


def likely_reward(card: TaskCard, owners: int) -> float:
    """Return about what a reward that is still to be chosen will be, were as many to take part."""
    assumptions = card.assumed
    preview = what_if(
        assumed_values(card, owners),
        training_of(card),
        rewards=[1.0],
        accuracy_value=assumptions.accuracy_value,
        accuracy=[accuracy_of(card)],
    )
    most = math.inf if card.max_reward is None else card.max_reward
    best, _ = preview.best[assumptions.accuracy]
    return float(f"{min(best, most):.3g}") if best else most


def first_total(
    card: TaskCard, *, reward: float, interested: int, reports: int = 0, reported: object = None
) -> float:
    """Return the total budget to announce first.

    Where everybody has reported a value it is the equilibrium's; else a guess that ticks correct:
    the equilibrium of as many owners whose values lie evenly spread over what the card assumes.
    A clock starts where the reward pays for the fewest lots that the card wants.
    """
    if card.sells_lots:
        return first_clock_total(card)
    all_reported = reports == interested >= 2
    values = reported if all_reported else assumed_values(card, max(interested, 2))
    return equilibrium(values, reward=reward).total_budget


def _best(card: TaskCard, owners: int, reported: object) -> float:
    assumptions = card.assumed
    training, accuracy, worth = training_of(card), accuracy_of(card), assumptions.accuracy_value
    offer: Offer | ExpectedOffer
    if reported is None:
        offer = best_reward(
            assumptions.values, training, accuracy_value=worth, accuracy=accuracy, owners=owners
        )
    else:
        offer = best_reward(reported, training, accuracy_value=worth, accuracy=accuracy)
    if not offer.reward:
        raise InvalidGame(
            f"no reward pays at an accuracy value of {assumptions.accuracy_value:g} under the "
            f"accuracy model {assumptions.accuracy!r}; give a reward, or a larger accuracy value"
        )
    return float(offer.reward)


def micro_credits_of(amount: float) -> MicroCredits:
    """Return a reward in credits as whole micro-credits."""
    if not amount <= REWARD_MAX:
        raise InvalidGame(f"reward must be at most {REWARD_MAX:g} credits; found {amount:g}")
    reward = MicroCredits(round(amount * MICRO_CREDITS_PER_CREDIT))
    if reward < 1:
        raise InvalidGame(f"reward must be at least 0.000001 credits; found {amount:g}")
    return reward
