"""What a card would buy: who would take part, how accurate the model gets, who earns what."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field

from fedbourse.dashboard.forms import Fields, Form, InvalidForm, read_form
from fedbourse.errors import FedbourseError
from fedbourse.game import (
    ACCURACY_MODELS,
    Accuracy,
    Equilibrium,
    Training,
    Uniform,
    equilibrium,
    what_if,
)
from fedbourse.game.columns import FloatArray
from fedbourse.game.what_if import WhatIf
from fedbourse.learning.models import MODELS, model_named
from fedbourse.privacy.noise import CLIP_MAX, CLIP_MIN
from fedbourse.units import REWARD_MAX, REWARD_MIN

OWNERS_MAX = 100_000
POINTS = 61
"""Of the curve that is drawn."""
_BELOW = 1e4
"""How far below the accuracy value the curve of rewards begins."""

Credits = Annotated[float, Field(ge=REWARD_MIN, le=REWARD_MAX)]
Positive = Annotated[float, Field(gt=0, le=1e100)]
NotNegative = Annotated[float, Field(ge=0, le=1e100)]
Share = Annotated[float, Field(ge=0, le=1)]


def _sample(text: str) -> str:
    """Check a pasted column of values."""
    words = text.replace(",", " ").replace(";", " ").split()
    if not 2 <= len(words) <= OWNERS_MAX:
        raise ValueError(f"must be 2 to {OWNERS_MAX:,} numbers; found {len(words)}")
    for word in words:
        try:
            fits = 0 < float(word) <= 1e100
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(f"must be numbers above 0; found {word:.30}")
    return " ".join(words)


class Supposed(Form):
    """What the result depends on: some fields of the card, and how many owners are assumed."""

    reward_kind: Literal["fixed", "best", "best-reported"] = "fixed"
    reward: Credits | None = None
    max_reward: Credits | None = None
    max_rho: Annotated[float, Field(ge=1e-100, le=1e100)] = 10.0
    min_participants: Annotated[int, Field(ge=2, le=1_000_000)] = 2
    model: Literal[tuple(MODELS)] = "logistic"  # type: ignore[valid-type]
    units: Annotated[int, Field(ge=1, le=1_000_000)] = 16
    features: Annotated[int, Field(ge=1, le=1_000_000)]
    classes: Annotated[int, Field(ge=0, le=1_000_000)]
    step_size: Positive
    rounds: Annotated[int, Field(ge=1, le=1_000_000)]
    samples: Annotated[int, Field(ge=1, le=2**53)]
    clip: Annotated[float, Field(ge=CLIP_MIN, le=CLIP_MAX)]
    accuracy_value: Annotated[float, Field(gt=0, le=1e15)]
    accuracy: Literal[tuple(ACCURACY_MODELS)] = "precision"  # type: ignore[valid-type]
    chance: Share = 0.0
    ceiling: Share = 1.0
    noise: Positive = 1.0
    sampling: NotNegative = 0.0
    values_low: Positive
    values_high: Positive
    owners: Annotated[int, Field(ge=2, le=OWNERS_MAX)] = 1000
    sample: Annotated[str, AfterValidator(_sample)] | None = None

    @property
    def model_name(self) -> str:
        """The model as a card names it."""
        return f"hidden:{self.units}" if self.model == "hidden" else self.model

    def values(self) -> FloatArray:
        """Return owners' values, rising: spread evenly as the market's first guess, or sampled."""
        if self.sample is None:
            return Uniform(self.values_low, self.values_high).spread(self.owners)
        sample = np.sort(np.array(self.sample.split(), dtype=np.float64))
        places, at = ((np.arange(count) + 0.5) / count for count in (self.owners, len(sample)))
        return np.interp(places, at, sample)

    def training(self) -> Training:
        """Return the training as the game sees it."""
        model = model_named(self.model_name, features=self.features, classes=self.classes)
        return Training(
            dimension=model.dimension,
            step_size=self.step_size,
            iterations=self.rounds,
            samples=float(self.samples),
            clip=self.clip,
        )


@dataclass(frozen=True)
class Earner:
    """One of those who take part."""

    name: str
    value: float
    pay: float
    budget: float


@dataclass(frozen=True)
class Prediction:
    """What one accuracy model says."""

    model: str
    accuracy: float
    utility: float
    best_reward: float
    """R*; 0 where no reward pays."""
    best_utility: float


@dataclass(frozen=True)
class WhatIfResult:
    """What a page shows of it."""

    supposed: Supposed
    reward: float
    reward_is_best: bool
    owners: int
    participants: int
    cutoff: float
    total_budget: float
    predictions: tuple[Prediction, ...]
    earners: tuple[Earner, ...]
    curves: dict[str, Any]
    took_ms: float

    @property
    def chosen(self) -> Prediction:
        """What the buyer's own model says."""
        return next(each for each in self.predictions if each.model == self.supposed.accuracy)

    @property
    def largest_budget(self) -> float:
        """The largest budget that is shown; the card's ``max_rho`` is not modelled."""
        return max(each.budget for each in self.earners)


def supposed_in(fields: Fields) -> Supposed:
    """Return what a page's form supposes, other fields left aside."""
    own = {name: texts for name, texts in fields.items() if name in Supposed.model_fields}
    supposed = read_form(own, Supposed)
    errors = {}
    if supposed.sample is None and supposed.values_high <= supposed.values_low:
        errors["values_high"] = f"should be above the lowest, {supposed.values_low:g}"
    if supposed.ceiling <= supposed.chance:
        errors["ceiling"] = f"should be above the accuracy of guessing, {supposed.chance:g}"
    if supposed.reward_kind == "fixed" and supposed.reward is None:
        errors["reward"] = "this is needed"
    try:
        supposed.training()
    except FedbourseError as error:
        errors[field_of(str(error), Supposed, "model")] = str(error)
    if errors:
        raise InvalidForm(errors, fields)
    return supposed


def field_of(sentence: str, form: type[Form], otherwise: str) -> str:
    """Return the field that a sentence of the domain begins with.

    >>> field_of("clip must be above 0; found -1", Supposed, "form")
    'clip'
    """
    name = sentence.removeprefix("a card's ").partition(" ")[0]
    return name if name in form.model_fields else otherwise


def predict(supposed: Supposed) -> WhatIfResult:
    """Return what would happen; in well under 100 ms for 10^5 owners."""
    start = time.perf_counter()
    values, training = supposed.values(), supposed.training()
    accuracy = Accuracy(
        supposed.accuracy,
        chance=supposed.chance,
        ceiling=supposed.ceiling,
        noise=supposed.noise,
        sampling=supposed.sampling,
    )
    models = [accuracy.by(name) for name in ACCURACY_MODELS]

    fixed = supposed.reward if supposed.reward_kind == "fixed" else None
    rewards = _rewards(supposed.accuracy_value, fixed)
    # One pass for all rewards: it is what takes time.
    outcomes = what_if(
        values, training, rewards=rewards, accuracy_value=supposed.accuracy_value, accuracy=models
    )
    reward = _best(supposed, outcomes) if fixed is None else fixed
    solution = equilibrium(values, reward=reward)
    return WhatIfResult(
        supposed=supposed,
        reward=reward,
        reward_is_best=fixed is None,
        owners=solution.owners,
        participants=solution.count,
        cutoff=float(solution.cutoff or 0.0),
        total_budget=solution.total_budget,
        predictions=tuple(_prediction(name, outcomes, reward) for name in ACCURACY_MODELS),
        earners=_earners(values, solution),
        curves=_curves(outcomes, reward, supposed.accuracy),
        took_ms=1000 * (time.perf_counter() - start),
    )


def _rewards(accuracy_value: float, reward: float | None) -> FloatArray:
    """Return the rewards of the curve; above the accuracy value none pays."""
    fixed = [] if reward is None else [reward]
    low, high = min([accuracy_value / _BELOW, *fixed]), max([accuracy_value, *fixed])
    return np.unique(np.concatenate([np.geomspace(low, high, POINTS), fixed]))


def _best(supposed: Supposed, outcomes: WhatIf) -> float:
    """Return the reward that the market would fix by itself: R*, within the card's bound."""
    best = outcomes.best[supposed.accuracy][0]
    if not best:
        raise InvalidForm(
            {"accuracy_value": "should be larger: by the accuracy model chosen, no reward pays"}, {}
        )
    return min(best, supposed.max_reward or best)


def _prediction(name: str, outcomes: WhatIf, reward: float) -> Prediction:
    """Return what a model predicts for a reward, interpolated between the points of the curve."""
    at = np.log(reward), np.log(outcomes.rewards)
    accuracy = float(np.interp(*at, outcomes.accuracy[name]))
    utility = float(np.interp(*at, outcomes.utility[name]))
    return Prediction(name, accuracy, utility, *outcomes.best[name])


def _earners(values: FloatArray, solution: Equilibrium) -> tuple[Earner, ...]:
    """Return what the participants with the lowest, the median and the highest value earn."""
    # Participants are the owners with the lowest values, and values rise.
    count = solution.count
    places = {"lowest": 0, "median": count // 2, "highest": count - 1}
    chosen = values[list(places.values())]
    budgets = solution.budgets_of(chosen)
    return tuple(
        Earner(
            name,
            float(value),
            solution.reward * float(budget) / solution.total_budget,
            float(budget),
        )
        for name, value, budget in zip(places, chosen, budgets, strict=True)
    )


def _curves(outcomes: WhatIf, reward: float, chosen: str) -> dict[str, Any]:
    """Return the curves with as many digits as a screen shows."""

    def short(numbers: FloatArray) -> list[float]:
        return [float(f"{each:.6g}") for each in numbers]

    return {
        "models": list(ACCURACY_MODELS),
        "rewards": short(outcomes.rewards),
        "utility": {name: short(each) for name, each in outcomes.utility.items()},
        "best": {name: [reward, gain] for name, (reward, gain) in outcomes.best.items()},
        "reward": reward,
        "chosen": chosen,
    }
