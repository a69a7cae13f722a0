"""Cards from what is particular to them: all other items have usual values, or follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.learning.models import model_named
from fedbourse.learning.records import Scaling
from fedbourse.tasks.card import TaskCard

if TYPE_CHECKING:
    from fedbourse.tasks.layout import Layout


def task_card(*, goal: str, data: str, layout: Layout | None = None, **items: Any) -> TaskCard:
    """Return a card; the layout, where there is one, tells features, classes and scaling.

    >>> card = task_card(goal="is it late?", data="flights", features=9, reward=10.0)
    >>> card.loss, card.dimension, card.rounds
    ('logistic', 9, 20)
    """
    model = items.get("model", "logistic")
    items = {
        "loss": model,
        "query": "gradient",
        "compensation": "proportional",
        "scaling": "none",
        "model": model,
        "classes": 2,
        "step_size": 1.0,
        "rounds": 20,
        "samples": 1000,
        "clip": 1.0,
        "aggregation": "precision",
        "vesting": "by-round",
        **(_items_of(layout) if layout else {}),
        **items,
    }
    if "dimension" not in items:
        sizes = {name: items[name] for name in ("features", "classes")}
        items["dimension"] = model_named(model, **sizes).dimension
    return TaskCard(goal=goal, data=data, layout=layout, **items)


def _items_of(layout: Layout) -> dict[str, Any]:
    shifts, scales = ([getattr(each, n) for each in layout.columns] for n in ("shift", "scale"))
    classes = {"classes": len(layout.classes)} if layout.classes else {}
    return {
        "features": len(layout.columns) + 1,
        "scaling": Scaling(np.array(shifts), np.array(scales)).digest,
        **classes,
    }
