"""How a training goes: what a task card and a recipe without a market have in common."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from fedbourse.encoding.plain_text import plain_text
from fedbourse.errors import InvalidInput
from fedbourse.learning.aggregation import AGGREGATIONS
from fedbourse.learning.models import model_named
from fedbourse.privacy.noise import CLIP_MAX, CLIP_MIN
from fedbourse.privacy.terms import Terms
from fedbourse.tasks.layout import Layout
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedbourse.learning.models import Model

TEXT_MAX = 2000


@dataclass(frozen=True, kw_only=True)
class TrainingSpec:
    """The items that decide what devices compute, and how their updates become a model."""

    noun: ClassVar[str]
    """What error sentences call it."""

    data: str
    """The category of data: what a record is."""
    model: str
    features: int
    """Numbers in a record, after scaling, the constant 1 included."""
    classes: int
    """Classes that are told apart; 0 where labels are numbers."""
    step_size: float
    rounds: int
    samples: int
    """m: an update is computed from a fixed random subset of this many of a device's records."""
    clip: float
    aggregation: str
    start_seed: int = 0
    """What the parameters of round 0 are drawn from, where the model does not start at zero."""
    layout: Layout | None = None
    """How an owner's table becomes records; None where devices hold records that are ready."""

    def __post_init__(self) -> None:
        self._check_text("data")
        self._check_text("model")
        AGGREGATIONS.choose(self.aggregation)
        for name in ("features", "rounds", "samples"):
            whole_number(name, getattr(self, name), at_least=1)
        for name in ("classes", "start_seed"):
            whole_number(name, getattr(self, name), at_least=0)
        number("step_size", self.step_size, above=0)
        number("clip", self.clip, at_least=CLIP_MIN, at_most=CLIP_MAX)
        self._check_layout()
        self.build()

    def _check_text(self, name: str, *, at_least: int = 1, at_most: int = TEXT_MAX) -> None:
        text, what = getattr(self, name), f"a {self.noun}'s {name}"
        if not isinstance(text, str) or len(text.strip()) < at_least:
            raise InvalidInput(f"{what} must be a text; found {text!r:.60}")
        if len(text) > at_most:
            raise InvalidInput(f"{what} must be at most {at_most} characters; found {len(text)}")
        plain_text(what, text)

    def _check_layout(self) -> None:
        if not isinstance(self.layout, Layout | None):
            raise InvalidInput(
                f"a {self.noun}'s layout must be an object; found {self.layout!r:.60}"
            )
        if self.layout is None:
            return
        features, classes = len(self.layout.columns) + 1, len(self.layout.classes)
        if features != self.features:
            raise InvalidInput(
                f"a layout of {features - 1} columns and the constant 1 makes {features} features; "
                f"the {self.noun} says {self.features}"
            )
        if classes and classes != self.classes:
            raise InvalidInput(
                f"the layout names {classes} classes; the {self.noun} has {self.classes}"
            )

    def build(self) -> Model:
        """Return the model."""
        return model_named(self.model, features=self.features, classes=self.classes)

    def privacy_terms(self, *, task: str, budget: float) -> Terms:
        """Return what an owner sells for a budget: what its filter will hold it to."""
        return Terms(
            task=task,
            rho=budget,
            rounds=self.rounds,
            dimension=self.build().dimension,
            samples=self.samples,
            clip=self.clip,
        )

    @classmethod
    def _items(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the items of a document, with its layout read."""
        items = document_items(cls, document, cls.noun)
        if items.get("layout") is not None:
            items["layout"] = Layout.of(items["layout"])
        return items

    @property
    def document(self) -> dict[str, Any]:
        """Return it as a plain document."""
        return asdict(self) | {"layout": self.layout.document if self.layout else None}


def document_items(kind: type, document: object, noun: str) -> dict[str, Any]:
    """Return the items of a document that must be exactly those of a record; name the others."""
    if not isinstance(document, dict):
        raise InvalidInput(f"a {noun} must be an object; found {type(document).__name__}")
    items = {field.name: field for field in fields(kind)}
    unknown = [key for key in document if key not in items]
    if unknown:
        raise InvalidInput(f"a {noun} has no item {unknown[0]!r:.60}; it has {', '.join(items)}")
    missing = [
        key
        for key, field in items.items()
        if field.default is MISSING and field.default_factory is MISSING and key not in document
    ]
    if missing:
        raise InvalidInput(f"a {noun} needs {', '.join(missing)}")
    return dict(document)
