"""A training without a market: what is trained, and what owners agree to on their own machines."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fedbourse.errors import InvalidFile, InvalidInput
from fedbourse.learning.models import model_named
from fedbourse.learning.rounds import WEIGHTS, Weights
from fedbourse.privacy.noise import CLIP_MAX, CLIP_MIN
from fedbourse.privacy.terms import Terms
from fedbourse.units import number, whole_number
from fedbourse.wire.canonical import digest
from fedbourse.wire.layout import Layout

if TYPE_CHECKING:
    from pathlib import Path

    from fedbourse.learning.models import Model

_NAME_MAX = 200


@dataclass(frozen=True)
class Recipe:
    """All that decides what a device is asked: a public document, pinned by its hash."""

    name: str
    """What tells two trainings with otherwise the same recipe apart."""
    data: str
    """The category of data: what a record is."""
    model: str
    features: int
    """Numbers in a record, the constant 1 included."""
    classes: int
    """Classes that are told apart; 0 where labels are numbers."""
    rounds: int
    samples: int
    """m: a device answers from a fixed random subset of this many of its records."""
    clip: float
    step_size: float
    weights: Weights
    start_seed: int = 0
    layout: Layout | None = None
    """How an owner's table becomes records; None where devices hold records that are ready."""

    def __post_init__(self) -> None:
        """Check every item once."""
        for name in ("name", "data", "model"):
            text = getattr(self, name)
            if not isinstance(text, str) or not text.strip() or len(text) > 10 * _NAME_MAX:
                raise InvalidInput(f"a recipe's {name} must be said in words; found {text!r:.60}")
        if len(self.name) > _NAME_MAX:
            raise InvalidInput(
                f"a recipe's name must be at most {_NAME_MAX} characters; found {len(self.name)}"
            )
        if self.weights not in WEIGHTS:
            raise InvalidInput(
                f"weights must be one of {', '.join(WEIGHTS)}; found {self.weights!r:.60}"
            )
        for name in ("features", "rounds", "samples"):
            whole_number(name, getattr(self, name), at_least=1)
        for name in ("classes", "start_seed"):
            whole_number(name, getattr(self, name), at_least=0)
        number("step_size", self.step_size, above=0)
        number("clip", self.clip, at_least=CLIP_MIN, at_most=CLIP_MAX)
        if self.layout is not None and len(self.layout.columns) + 1 != self.features:
            raise InvalidInput(
                f"a layout of {len(self.layout.columns)} columns and the constant 1 makes "
                f"{len(self.layout.columns) + 1} features; the recipe says {self.features}"
            )
        names = self.layout.classes if self.layout is not None else ()
        if names and len(names) != self.classes:
            raise InvalidInput(
                f"the layout names {len(names)} classes; the recipe has {self.classes}"
            )
        self.build()

    def build(self) -> Model:
        """Return the model."""
        return model_named(self.model, features=self.features, classes=self.classes)

    @cached_property
    def document(self) -> dict[str, Any]:
        """Return the recipe as a plain document."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return plain | {"layout": self.layout.document if self.layout else None}

    @cached_property
    def task(self) -> str:
        """Return the name of the task in a device's books; it changes with any item."""
        return f"train/{digest(self.document)[:32]}"

    def terms(self, budget: float) -> Terms:
        """Return what an owner with this budget sells."""
        return Terms(
            task=self.task,
            rho=budget,
            rounds=self.rounds,
            dimension=self.build().dimension,
            samples=self.samples,
            clip=self.clip,
        )

    @classmethod
    def of(cls, document: object) -> Recipe:
        """Read a recipe from its document; unknown and missing items are named."""
        if not isinstance(document, dict):
            raise InvalidInput(f"a recipe must be an object; found {type(document).__name__}")
        known = [field.name for field in fields(cls)]
        required = [name for name in known if name not in ("start_seed", "layout")]
        for problem, names in (
            ("has no item", [name for name in document if name not in known]),
            ("needs", [name for name in required if name not in document]),
        ):
            if names:
                raise InvalidInput(f"a recipe {problem} {names[0]!r:.60}; it is {', '.join(known)}")
        layout = document.get("layout")
        return cls(**{**document, "layout": None if layout is None else Layout.of(layout)})

    @classmethod
    def read(cls, file: Path) -> Recipe:
        """Read a recipe from a file."""
        return cls.of(read_json(file, "a recipe"))


def read_json(file: Path, what: str) -> Any:
    """Return the JSON document of a file."""
    try:
        return json.loads(file.read_bytes(), parse_constant=_no_constant)
    except OSError as error:
        raise InvalidFile(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidFile(f"{file} must hold {what} as JSON: {error}") from None


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no number")
