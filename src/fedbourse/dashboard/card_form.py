"""The form of a task card: what a buyer fills in, what stands there before, and the card of it."""

from __future__ import annotations

import re
from dataclasses import asdict, fields
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from fedbourse.dashboard.forms import Fields, InvalidForm, read_form
from fedbourse.dashboard.what_if import Supposed, field_of, supposed_in
from fedbourse.encoding.strict_json import read_json
from fedbourse.errors import InvalidInput
from fedbourse.game import ACCURACY_MODELS
from fedbourse.game.mechanisms import market_choices
from fedbourse.learning.aggregation import AGGREGATIONS
from fedbourse.learning.models import MODELS, model_named
from fedbourse.tasks.card import (
    CARD_CHOICES,
    COST_RULES,
    UNEARNED,
    VESTINGS,
    Assumptions,
    Deadlines,
    TaskCard,
)
from fedbourse.tasks.evidence import POPULATIONS, REFERENCE_RECORDS_MIN, SOURCES, EvidenceSpec

_SPAN = re.compile(r"(\d+(?:\.\d*)?)\s*(s|min|h|d)", re.IGNORECASE)
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}
_LONGEST_S = 366 * 86400.0
_TEXT_MAX = 2000
_ASSUMED = [field.name for field in fields(Assumptions) if field.name != "values_quantiles"]
_SAME = (
    "goal", "data", "validation", "scaling", "features", "classes", "step_size", "rounds",
    "samples", "clip", "aggregation", "start_seed", "vesting", "unearned", "cost", "max_reward",
    "max_rho", "min_budget", "min_total_budget", "min_participants",
)  # fmt: skip
"""Items that the form and the card call alike."""


def seconds(text: object) -> object:
    """Return a span of time that was typed with its unit.

    >>> seconds("1.5 h"), seconds("300s")
    (5400.0, 300.0)
    """
    match = _SPAN.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ValueError("should be a number with s, min, h or d, such as 90 min")
    span = float(match[1]) * _SECONDS[match[2].lower()]
    if not 1 <= span <= _LONGEST_S:
        raise ValueError("should be at least 1 s and at most 366 d")
    return span


def seconds_or_none(text: object) -> object:
    """Return a span of time that may also be 0.

    >>> seconds_or_none("0"), seconds_or_none("10 min")
    (0.0, 600.0)
    """
    is_zero = isinstance(text, str) and text.strip() in ("0", "0 s", "0s")
    return 0.0 if is_zero else seconds(text)


def _layout(text: str) -> str:
    try:
        layout = read_json(text.encode())
    except UnicodeEncodeError:
        raise ValueError("should be JSON; found half a surrogate pair") from None
    except InvalidInput as error:
        why = str(error).replace("the body", "it").replace("in it", "in the layout")
        raise ValueError(
            f"should be JSON, as fedbourse task card --data writes it; {why}"
        ) from None
    if not isinstance(layout, dict):
        raise ValueError("should be a JSON object with columns and label")
    return text


def _sha256(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise ValueError("should be a SHA-256, 64 characters from 0 to 9 and a to f")
    return text


Text = Annotated[str, Field(max_length=_TEXT_MAX)]
Span = Annotated[float, BeforeValidator(seconds)]
Chance = Annotated[float, Field(gt=0, le=0.5)]


_MECHANISMS = {choice.name: choice.label for choice in market_choices()}


class NewTask(Supposed):
    """Everything that a buyer chooses."""

    goal: Text
    data: Text
    validation: Text = ""
    scaling: Text = "none"
    layout: Annotated[str, AfterValidator(_layout)] | None = None
    aggregation: Literal[tuple(AGGREGATIONS)] = "precision"  # type: ignore[valid-type]
    start_seed: Annotated[int, Field(ge=0, le=2**53)] = 0
    vesting: Literal[tuple(VESTINGS)] = "by-round"  # type: ignore[valid-type]
    unearned: Literal[tuple(UNEARNED)] = "fund"  # type: ignore[valid-type]
    cost: Literal[tuple(COST_RULES)] = "convex"  # type: ignore[valid-type]
    compensation: Literal[tuple(_MECHANISMS)] = "proportional"  # type: ignore[valid-type]
    min_budget: Annotated[float, Field(ge=0, le=1e100)] = 0.0
    min_total_budget: Annotated[float, Field(ge=0, le=1e100)] = 0.0
    evidence: Literal["off", "on"] = "off"
    reference: Annotated[str, AfterValidator(_sha256)] | None = None
    records: Annotated[int, Field(ge=REFERENCE_RECORDS_MIN, le=2**53)] | None = None
    population: Literal[tuple(POPULATIONS)] = "like-reference"  # type: ignore[valid-type]
    alpha: Chance = 0.01
    beta: Chance = 0.01
    k0: Annotated[float, Field(gt=0, le=1)] = 0.5
    hold_rounds: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    reveal_to_owners: Literal["no", "yes"] = "no"
    source: Literal[tuple(SOURCES)] = "records"  # type: ignore[valid-type]
    interest_s: Span
    plans_s: Span
    tick_s: Span
    terms_s: Span
    review_s: Annotated[float, BeforeValidator(seconds_or_none)]
    round_s: Span

    def document(self) -> dict[str, Any]:
        """Return the card's document."""
        model = model_named(self.model_name, features=self.features, classes=self.classes)
        return {name: getattr(self, name) for name in _SAME} | {
            "loss": self.model_name,
            "query": "gradient",
            "compensation": self.compensation,
            "reward": self.reward if self.reward_kind == "fixed" else self.reward_kind,
            "model": self.model_name,
            "dimension": model.dimension,
            "layout": None if self.layout is None else read_json(self.layout.encode()),
            "deadlines": {name: getattr(self, name) for name in asdict(Deadlines())},
            "assumptions": {name: getattr(self, name) for name in _ASSUMED},
            "evidence": self._evidence() if self.evidence == "on" else None,
        }

    def _evidence(self) -> dict[str, Any]:
        reveal = self.reveal_to_owners == "yes"
        names = [field.name for field in fields(EvidenceSpec) if field.name != "reveal_to_owners"]
        return {name: getattr(self, name) for name in names} | {"reveal_to_owners": reveal}


CHOICES = {
    item: [(choice.name, choice.label) for choice in registry.choices]
    for item, registry in {
        **CARD_CHOICES,
        "model": MODELS,
        "accuracy": ACCURACY_MODELS,
        "population": POPULATIONS,
        "source": SOURCES,
    }.items()
} | {"compensation": list(_MECHANISMS.items())}
"""What the form offers where an item is chosen by name."""
STARTS = {
    name: str(field.default).removesuffix(".0")
    for name, field in NewTask.model_fields.items()
    if not field.is_required()
} | {
    "layout": "",
    "sample": "",
    "reference": "",
    "records": "",
    "hold_rounds": "",
    "goal": "",
    "data": "",
    "features": "9",
    "classes": "2",
    "rounds": "50",
    "samples": "100",
    "step_size": "1",
    "clip": "1",
    "reward": "2",
    "max_reward": "20",
    "accuracy_value": "20",
    "chance": "0.5",
    "ceiling": "0.9",
    "values_low": "1",
    "values_high": "5",
    "interest_s": "24 h",
    "plans_s": "1 h",
    "tick_s": "60 s",
    "terms_s": "1 h",
    "review_s": "10 min",
    "round_s": "5 min",
}
"""What the form holds before anything is typed."""


def card_in(typed: Fields) -> TaskCard:
    """Return the card of a filled-in form, or refuse with a sentence for each wrong field."""
    errors: dict[str, str] = {}
    try:
        supposed_in(typed)
    except InvalidForm as error:
        errors |= error.errors
    try:
        form = read_form(typed, NewTask)
    except InvalidForm as error:
        raise InvalidForm(errors | error.errors, typed) from None
    if form.reward_kind != "fixed" and form.max_reward is None:
        errors["max_reward"] = "this is needed where the market computes the reward"
    if form.evidence == "on" and not form.reference:
        errors["reference"] = (
            "this is needed for evidence; fedbourse task card --evidence prints it"
        )
    if form.evidence == "on" and form.records is None:
        errors["records"] = "this is needed for evidence"
    if form.sample is not None and form.values_high <= form.values_low:
        errors["values_high"] = f"should be above the lowest, {form.values_low:g}"
    if errors:
        raise InvalidForm(errors, typed)
    try:
        return TaskCard.of(form.document())
    except InvalidInput as error:
        field = "layout" if "layout" in str(error) else field_of(str(error), NewTask, "form")
        raise InvalidForm({field: str(error)}, typed) from None
