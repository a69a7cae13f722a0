"""A card to start from: an example, or one that fits records of the buyer's own."""

from __future__ import annotations

import hashlib
from typing import Any

from fedbourse.learning.models import model_named
from fedbourse.wire.card import Assumptions, Deadlines, TaskCard


def example_card(
    data: str | None = None, *, review_s: float = Deadlines.review_s, **rules: Any
) -> dict[str, Any]:
    """Return a card's document; with ``data``, the layout and sizes are those of that source.

    The numbers that scale features come from the buyer's own records, which nobody is paid for.
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
            assumptions=Assumptions(weight=20.0, chance=0.75, ceiling=0.9),
            deadlines=Deadlines(review_s=review_s),
            validation="5000 flights of the buyer's own.",
        ).document
        | rules
    )
    return TaskCard.of(document if data is None else document | _fitted(data)).document


def _fitted(data: str) -> dict[str, Any]:
    from fedbourse.bootstrap.demo import layout_of
    from fedbourse.learning.data import load

    source = load(data)
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
