"""A card to start from: an example, or one that fits records of the buyer's own."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Any

from fedbourse.errors import InvalidData, MissingExtra
from fedbourse.learning.data import load
from fedbourse.learning.reference import pilot
from fedbourse.tasks.builder import task_card
from fedbourse.tasks.card import Assumptions, Deadlines, TaskCard
from fedbourse.tasks.layout import layout_of

_ACCURACY_VALUE, _CHANCE, _CEILING = 20.0, 0.75, 0.9
"""What the buyer of the example assumes; the accuracies are those of flights."""


def example_card(
    data: str | None = None,
    *,
    chance: float | None = None,
    ceiling: float | None = None,
    review_s: float = Deadlines.review_s,
    **rules: Any,
) -> dict[str, Any]:
    """Return a card's document; with ``data``, the layout and sizes are those of that source.

    The numbers that scale features come from the buyer's own records, which nobody is paid for. So
    do the accuracy of guessing and that without noise, where they are not given; where the records
    do not tell, the card assumes nothing.
    ``rules`` are items of the card, such as ``unearned``, in place of those of the example.
    """
    items: dict[str, Any] = {
        "goal": "Predict whether a flight arrives more than 15 minutes late.",
        "data": "A record is a flight: 8 numbers known at departure, and whether it came late.",
        "features": 9,
        "scaling": hashlib.sha256(b"none").hexdigest(),
        "validation": "5000 flights of the buyer's own.",
    }
    if data is None:
        chance, ceiling = _or(chance, _CHANCE), _or(ceiling, _CEILING)
    else:
        source = load(data)
        items = {
            "goal": f"Predict {source.label}.",
            "data": source.description,
            "model": source.default_model,
            "classes": source.buyer.classes,
            "samples": source.default_samples,
            "validation": f"{len(source.buyer)} records of the buyer's own.",
            "layout": layout_of(source),
        }
        # There may be nothing to learn, or no library to learn it with.
        with suppress(InvalidData, MissingExtra):
            if chance is None or ceiling is None:
                trial = pilot(source.buyer, seed=0)
                chance, ceiling = _or(chance, trial.chance), _or(ceiling, trial.ceiling)
    if chance is not None and ceiling is not None:
        items["assumptions"] = Assumptions(
            accuracy_value=_ACCURACY_VALUE, chance=chance, ceiling=ceiling
        )
    card = task_card(
        reward=10.0, rounds=50, max_reward=20.0, deadlines=Deadlines(review_s=review_s), **items
    )
    return TaskCard.of(card.document | rules).document


def _or(chosen: float | None, otherwise: float) -> float:
    return otherwise if chosen is None else chosen
