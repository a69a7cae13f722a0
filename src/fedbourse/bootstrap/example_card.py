"""A card to start from: an example, or one that fits records of the buyer's own."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fedbourse.errors import InvalidData, MissingExtra
from fedbourse.learning.data import load
from fedbourse.learning.models import model_named
from fedbourse.learning.reference import pilot
from fedbourse.wire.card import Assumptions, Deadlines, TaskCard

if TYPE_CHECKING:
    from fedbourse.learning.data import Source


_WEIGHT, _CHANCE, _CEILING = 20.0, 0.75, 0.9
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
    document = (
        TaskCard(
            goal="Predict whether a flight arrives more than 15 minutes late.",
            data="A record is a flight: 8 numbers known at departure, and whether it came late.",
            loss="logistic",
            query="gradient",
            compensation="proportional",
            reward=10.0,
            scaling=hashlib.sha256(b"none").hexdigest(),
            model="logistic",
            features=9,
            classes=2,
            dimension=9,
            step_size=1.0,
            rounds=50,
            samples=1000,
            clip=1.0,
            weights="precision",
            vesting="by-round",
            max_reward=20.0,
            deadlines=Deadlines(review_s=review_s),
            validation="5000 flights of the buyer's own.",
        ).document
        | rules
    )
    if data is None:
        example = _assumptions(_or(chance, _CHANCE), _or(ceiling, _CEILING))
        return TaskCard.of(document | {"assumptions": example}).document
    source = load(data)
    if chance is None or ceiling is None:
        try:
            found = pilot(source.buyer, seed=0)
            chance, ceiling = _or(chance, found.chance), _or(ceiling, found.ceiling)
        except (InvalidData, MissingExtra):  # nothing to learn, or no library to learn it with
            pass
    assumed = None if chance is None or ceiling is None else _assumptions(chance, ceiling)
    return TaskCard.of(document | _fitted(source) | {"assumptions": assumed}).document


def _or(given: float | None, otherwise: float) -> float:
    return otherwise if given is None else given


def _assumptions(chance: float, ceiling: float) -> dict[str, Any]:
    return asdict(Assumptions(weight=_WEIGHT, chance=chance, ceiling=ceiling))


def _fitted(source: Source) -> dict[str, Any]:
    from fedbourse.bootstrap.demo import layout_of

    features, classes = source.buyer.features.shape[1], source.buyer.classes
    model = model_named(source.default_model, features=features, classes=classes)
    return {
        "goal": f"Predict {source.label}.",
        "data": source.description,
        "loss": source.default_model,
        "scaling": source.scaling.digest,
        "model": source.default_model,
        "features": features,
        "classes": classes,
        "dimension": model.dimension,
        "samples": source.default_samples,
        "validation": f"{len(source.buyer)} records of the buyer's own.",
        "layout": layout_of(source).document,
    }
