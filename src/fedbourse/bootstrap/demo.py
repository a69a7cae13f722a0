"""The wiring: real data, simulated owners and one process make a whole trade."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedbourse.bootstrap.embedded_market import embedded_market
from fedbourse.bootstrap.embedded_trade import EmbeddedTrade
from fedbourse.bootstrap.simulated_devices import Owners
from fedbourse.errors import InvalidData, InvalidInput
from fedbourse.game import Uniform
from fedbourse.learning.data import load
from fedbourse.learning.engines.local import sometimes_away
from fedbourse.learning.models import model_named
from fedbourse.learning.partition import partition
from fedbourse.learning.reference import pilot, reference_accuracy
from fedbourse.learning.rounds import WEIGHTS
from fedbourse.market.report import trade_report
from fedbourse.privacy.noise import ExactNoise, SimulatedNoise
from fedbourse.privacy.zcdp import DELTA, rho_for
from fedbourse.units import REWARD_MAX, REWARD_MIN, number, whole_number
from fedbourse.wire.card import Assumptions, TaskCard
from fedbourse.wire.layout import Column, Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fedbourse.game.columns import IntArray
    from fedbourse.learning.partition import Federation
    from fedbourse.learning.records import Records
    from fedbourse.learning.rounds import Round, Weights
    from fedbourse.learning.sources import Source
    from fedbourse.privacy.noise import Noise
    from fedbourse.privacy.terms import Terms

_USUAL_OWNERS = 200


@dataclass(frozen=True)
class DemoSettings:
    """What a demonstration trade may be asked for."""

    data: str = "flights"
    owners: int | None = None
    """How many are interested; where it is not given, 200 or as many as the data can serve."""
    samples: int | None = None
    """Records an owner; where it is not given, what suits the data."""
    partition: str | None = None
    """How records are dealt out: iid, dirichlet:ALPHA or groups; by default what suits the data."""
    values: tuple[float, float] = (1.0, 5.0)
    """The ends of the uniform distribution that values come from."""
    reward: float | Literal["best"] = "best"
    weight: float = 20.0
    rounds: int = 50
    step_size: float = 1.0
    clip: float = 1.0
    model: str | None = None
    weights: Weights = "precision"
    noise: Literal["simulated", "exact"] = "simulated"
    dropout: float = 0.0
    """How often an owner is away in a round."""
    cap_epsilon: float = 8.0
    """Every owner's lifetime cap, as an epsilon about one record at delta 1e-5."""
    seed: int = 0


def demo_trade(
    settings: DemoSettings,
    *,
    on_step: Callable[[str], None] = lambda sentence: None,
    on_round: Callable[[Round], None] = lambda seen: None,
) -> dict[str, Any]:
    """Carry out a whole trade on real data and return its report."""
    seed = whole_number("seed", settings.seed, at_least=0)
    dropout = number("dropout", settings.dropout, at_least=0, at_most=1)
    if settings.weights not in WEIGHTS:
        raise InvalidInput(
            f"weights must be one of {', '.join(WEIGHTS)}; found {settings.weights!r:.60}"
        )
    source = load(settings.data, seed=seed)
    on_step(
        f"{source.name}: {len(source.pool)} records for owners, {len(source.buyer)} the buyer's own"
    )
    samples = source.default_samples if settings.samples is None else settings.samples
    samples = whole_number("samples", samples, at_least=1)
    scheme = settings.partition or ("iid" if source.groups is None else "groups")
    if scheme.startswith("unequal"):
        raise InvalidInput("a card fixes one number of records for all; partition unequal does not")
    interested = _interested(settings.owners, source, samples, scheme)
    assumed, validation = _pilot(settings, source, seed)
    on_step(
        f"the buyer's pilot: {assumed.ceiling:.1%} without privacy, "
        f"{assumed.chance:.1%} by guessing"
    )

    model = model_named(
        settings.model or source.default_model,
        features=source.buyer.features.shape[1],
        classes=source.buyer.classes,
    )
    cap = rho_for(epsilon=settings.cap_epsilon, delta=DELTA)
    card = _card(settings, source, assumed, dimension=model.dimension, samples=samples, cap=cap)
    on_step(f"the card is published: {source.description}")

    def records(chosen: IntArray) -> Federation:
        return partition(
            source.pool,
            owners=len(chosen),
            samples=samples,
            scheme=scheme,
            seed=seed,
            groups=source.groups,
            name=source.name,
        )

    def noise(terms: Sequence[Terms]) -> Noise:
        return ExactNoise(terms) if settings.noise == "exact" else SimulatedNoise(terms, seed=seed)

    owners = Owners(
        values=Uniform(*settings.values).rvs(
            size=(interested,), random_state=np.random.default_rng([seed, 3])
        ),
        lifetime_caps=np.full(interested, cap),
        records=records,
        noise=noise,
        available=sometimes_away(dropout, seed=seed) if dropout else None,
    )
    with embedded_market() as embedded:
        trade = EmbeddedTrade(
            embedded, card, model, validation, owners, on_step=on_step, on_round=on_round
        ).run()
    on_step("the same records without privacy, by scikit-learn")
    participants = np.array([each.owner for each in trade.participants])
    without_privacy = reference_accuracy(records(participants).records, validation)
    return trade_report(
        trade,
        validation_records=len(validation),
        scaling=source.scaling,
        references={
            "scikit-learn on all participants' records": without_privacy,
            "guessing the commonest class": assumed.chance,
        },
        origin=asdict(settings) | {"owners": interested, "values": list(settings.values)},
    )


def _pilot(settings: DemoSettings, source: Source, seed: int) -> tuple[Assumptions, Records]:
    """Return what a buyer finds on half of its own records, and the half that judges the model."""
    found = pilot(source.buyer, seed=seed)
    shape = "precision" if settings.weights == "precision" else "averaged"
    low, high = settings.values
    assumed = Assumptions(
        weight=settings.weight,
        accuracy=shape,
        chance=found.chance,
        ceiling=found.ceiling,
        values_low=low,
        values_high=high,
    )
    return assumed, found.validation


def _card(
    settings: DemoSettings,
    source: Source,
    assumed: Assumptions,
    *,
    dimension: int,
    samples: int,
    cap: float,
) -> TaskCard:
    model = settings.model or source.default_model
    return TaskCard(
        goal=source.description,
        data=source.name,
        scaling=source.scaling.digest,
        loss=model,
        query="gradient",
        compensation="proportional",
        reward=settings.reward,
        model=model,
        features=source.buyer.features.shape[1],
        classes=source.buyer.classes,
        dimension=dimension,
        step_size=settings.step_size,
        rounds=whole_number("rounds", settings.rounds, at_least=1),
        samples=samples,
        clip=settings.clip,
        weights=settings.weights,
        vesting="by-round",
        start_seed=settings.seed,
        # An accuracy of 1 is worth no more.
        max_reward=min(max(settings.weight, REWARD_MIN), REWARD_MAX)
        if settings.reward == "best"
        else None,
        max_rho=max(TaskCard.max_rho, cap),  # so that only an owner's own cap binds
        assumptions=assumed,
        validation=f"{len(source.buyer) // 2} records of the buyer's own",
        layout=layout_of(source),
    )


def layout_of(source: Source) -> Layout:
    """Return how a table with a source's columns becomes its records."""
    numbers = zip(
        source.feature_names[:-1],  # the last is the constant 1
        source.scaling.shift.tolist(),
        source.scaling.scale.tolist(),
        strict=True,
    )
    columns = tuple(Column(*each) for each in numbers)
    return Layout(columns, label=source.label, classes=source.class_names)


def _interested(asked: int | None, source: Source, samples: int, scheme: str) -> int:
    """Return the number of owners, and refuse more than the data can serve."""
    able = len(source.pool) // samples
    if scheme == "groups" and source.groups is not None:
        able = int(np.count_nonzero(np.bincount(source.groups[source.groups >= 0]) >= samples))
    wanted = (
        min(_USUAL_OWNERS, able) if asked is None else whole_number("owners", asked, at_least=2)
    )
    if wanted > able or able < 2:
        raise InvalidData(
            f"{source.name} can serve {able} owners of {samples} records, and "
            + (f"{wanted} were asked for" if able > 1 else "a trade needs two")
        )
    return wanted
