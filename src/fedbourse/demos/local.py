"""The wiring: real data, simulated owners and one process make a whole trade."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedbourse.embedded.market import embedded_market
from fedbourse.embedded.simulated_devices import SimulatedOwners
from fedbourse.embedded.trade import EmbeddedTrade
from fedbourse.errors import InvalidData, InvalidInput
from fedbourse.game import Uniform
from fedbourse.learning.aggregation import AGGREGATIONS
from fedbourse.learning.data import load
from fedbourse.learning.engines.local import sometimes_away
from fedbourse.learning.partition import partition
from fedbourse.learning.reference import pilot, reference_accuracy
from fedbourse.market.report import trade_report
from fedbourse.privacy.noise import ExactNoise, SimulatedNoise
from fedbourse.privacy.zcdp import DELTA, rho_for
from fedbourse.tasks.builder import task_card
from fedbourse.tasks.card import Assumptions, TaskCard
from fedbourse.tasks.layout import layout_of
from fedbourse.units import REWARD_MAX, REWARD_MIN, number, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fedbourse.game.columns import IntArray
    from fedbourse.learning.partition import Federation
    from fedbourse.learning.records import Records
    from fedbourse.learning.rounds import RoundResult
    from fedbourse.learning.sources import Source
    from fedbourse.privacy.noise import Noise
    from fedbourse.privacy.terms import Terms

_USUAL_OWNERS = 200


@dataclass(frozen=True)
class DemoSettings:
    """The settings of a demonstration trade."""

    data: str = "flights"
    owners: int | None = None
    """How many are interested; by default 200, or as many as the data can serve."""
    samples: int | None = None
    """Records of each owner; by default what suits the data."""
    partition: str | None = None
    """How records are dealt out: iid, dirichlet:ALPHA or groups; by default what suits the data."""
    values: tuple[float, float] = (1.0, 5.0)
    """The ends of the uniform distribution that values come from."""
    reward: float | Literal["best"] = "best"
    accuracy_value: float = 20.0
    rounds: int = 50
    step_size: float = 1.0
    clip: float = 1.0
    model: str | None = None
    aggregation: str = "precision"
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
    on_round: Callable[[RoundResult], None] = lambda result: None,
) -> dict[str, Any]:
    """Carry out a whole trade on real data and return its report."""
    seed = whole_number("seed", settings.seed, at_least=0)
    dropout = number("dropout", settings.dropout, at_least=0, at_most=1)
    AGGREGATIONS.choose(settings.aggregation)
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

    cap = rho_for(epsilon=settings.cap_epsilon, delta=DELTA)
    card = _card(settings, source, assumed, samples=samples, cap=cap)
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

    owners = SimulatedOwners(
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
            embedded, card, card.build(), validation, owners, on_step=on_step, on_round=on_round
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
    """Return what a buyer learns from half of its own records, and the half to evaluate on."""
    result = pilot(source.buyer, seed=seed)
    shape = "precision" if settings.aggregation == "precision" else "averaged"
    low, high = settings.values
    assumed = Assumptions(
        accuracy_value=settings.accuracy_value,
        accuracy=shape,
        chance=result.chance,
        ceiling=result.ceiling,
        values_low=low,
        values_high=high,
    )
    return assumed, result.validation


def _card(
    settings: DemoSettings, source: Source, assumed: Assumptions, *, samples: int, cap: float
) -> TaskCard:
    return task_card(
        goal=source.description,
        data=source.name,
        reward=settings.reward,
        model=settings.model or source.default_model,
        classes=source.buyer.classes,
        step_size=settings.step_size,
        rounds=whole_number("rounds", settings.rounds, at_least=1),
        samples=samples,
        clip=settings.clip,
        aggregation=settings.aggregation,
        start_seed=settings.seed,
        # An accuracy of 1 is worth no more.
        max_reward=min(max(settings.accuracy_value, REWARD_MIN), REWARD_MAX)
        if settings.reward == "best"
        else None,
        max_rho=max(TaskCard.max_rho, cap),  # so that only an owner's own cap binds
        assumptions=assumed,
        validation=f"{len(source.buyer) // 2} records of the buyer's own",
        layout=layout_of(source),
    )


def _interested(owners: int | None, source: Source, samples: int, scheme: str) -> int:
    """Return the number of owners, and refuse more than the data can serve."""
    able = len(source.pool) // samples
    if scheme == "groups" and source.groups is not None:
        able = int(np.count_nonzero(np.bincount(source.groups[source.groups >= 0]) >= samples))
    count = min(_USUAL_OWNERS, able)
    if owners is not None:
        count = whole_number("owners", owners, at_least=2)
    if count > able or able < 2:
        raise InvalidData(
            f"{source.name} can serve {able} owners of {samples} records, and "
            + (f"{count} were asked for" if able > 1 else "a trade needs two")
        )
    return count
