"""The task card in the API's document, drawn from the one class that checks cards."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body
from pydantic import TypeAdapter, WithJsonSchema

from fedbourse.tasks.card import TaskCard

EXAMPLE: dict[str, Any] = {
    "goal": "will a flight arrive late?",
    "data": "flights of one airline",
    "scaling": "published with the task",
    "loss": "logistic",
    "query": "gradient",
    "compensation": "proportional",
    "reward": 10.0,
    "model": "logistic",
    "features": 116,
    "classes": 2,
    "dimension": 116,
    "step_size": 1.0,
    "rounds": 100,
    "samples": 1000,
    "clip": 1.0,
    "aggregation": "precision",
    "vesting": "by-round",
}


def _schema() -> dict[str, Any]:
    """Return the card's schema in one piece, without references to parts elsewhere."""
    root = TypeAdapter(TaskCard).json_schema()
    parts = root.pop("$defs")

    def whole(node: Any) -> Any:
        if isinstance(node, list):
            return [whole(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            rest = {key: value for key, value in node.items() if key != "$ref"}
            return {**whole(parts[node["$ref"].rpartition("/")[2]]), **rest}
        return {key: whole(value) for key, value in node.items()}

    schema: dict[str, Any] = whole(root) | {"additionalProperties": False}
    return schema


SCHEMA = _schema()
CardBody = Annotated[
    dict[str, Any], WithJsonSchema(SCHEMA | {"example": EXAMPLE}), Body(description="The card.")
]
"""A card as it is sent; ``TaskCard.of`` checks it."""
CardDocument = Annotated[
    dict[str, Any], WithJsonSchema(SCHEMA | {"required": list(SCHEMA["properties"])})
]
"""A card as it is shown, with every item."""
FULL_EXAMPLE: dict[str, Any] = TaskCard.of(EXAMPLE).document
