"""The task card: what a buyer publishes, and all that an owner needs to decide."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Literal

from fedbourse.errors import InvalidInput
from fedbourse.learning.query import query_named
from fedbourse.learning.rounds import WEIGHTS, Weights
from fedbourse.units import number, whole_number


@dataclass(frozen=True)
class TaskCard:
    """The paper's six items, and what training needs."""

    goal: str
    data: str
    """The category of data: what a record is."""
    scaling: str
    """The hash of the public numbers that scale features; never computed from owners' records."""
    loss: str
    """The loss function, named by its model."""
    query: str
    compensation: str
    reward: float | Literal["best"]
    """R in credits, or ``best``: the best for the values that the buyer assumes."""

    model: str
    dimension: int
    step_size: float
    rounds: int
    samples: int
    """m: a device answers from a fixed random subset of this many of its records."""
    clip: float
    weights: Weights
    payout: str

    def __post_init__(self) -> None:
        """Check every item once."""
        for name in ("goal", "data", "scaling", "loss", "model"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                raise InvalidInput(f"a card's {name} must be said in words; found none")
        query_named(self.query)
        for name, known in (
            ("compensation", ("proportional",)),
            ("weights", WEIGHTS),
            ("payout", ("vested",)),
        ):
            if getattr(self, name) not in known:
                raise InvalidInput(
                    f"{name} must be one of {', '.join(known)}; found {getattr(self, name)!r:.60}"
                )
        if self.reward != "best":
            number("reward", self.reward, above=0)
        for name in ("dimension", "rounds", "samples"):
            whole_number(name, getattr(self, name), at_least=1)
        number("step_size", self.step_size, above=0)
        number("clip", self.clip, above=0)

    @property
    def digest(self) -> str:
        """Return the hash that every later message of the trade refers to."""
        body = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(body.encode()).hexdigest()
