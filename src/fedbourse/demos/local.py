"""The wiring: real data, simulated owners and one process make a whole trade."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedbourse.demos.local_owners import DealtRecords, cap_of, deal, simulated_owners
from fedbourse.embedded.market import embedded_market
from fedbourse.embedded.trade import EmbeddedTrade
from fedbourse.errors import InvalidData
from fedbourse.learning.aggregation import AGGREGATIONS
from fedbourse.learning.data import load
from fedbourse.learning.reference import Pilot, pilot, reference_accuracy
from fedbourse.market.report import trade_money, trade_report
from fedbourse.tasks.builder import task_card
from fedbourse.tasks.card import Assumptions, TaskCard
from fedbourse.tasks.evidence import (
    REFERENCE_RECORDS_MIN,
    SALT_BYTES,
    EvidenceSpec,
    reference_file,
    reference_hash,
)
from fedbourse.tasks.layout import layout_of
from fedbourse.units import REWARD_MAX, REWARD_MIN, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.learning.rounds import RoundResult
    from fedbourse.learning.sources import Source
    from fedbourse.market.report import Trade

_REFERENCE_MAX = 1000
"""How many of the buyer's records updates are compared with, at most."""


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
    without_data: int = 1
    """How many owners, the first ones, have no data and send noise alone."""
    evidence: bool = True
    """Whether the market compares updates with the buyer's reference records."""
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
    """Carry out a whole trade on real data and return its report.

    Where evidence is on and some owners have no data, the report compares the trade with the same
    one without evidence.
    """
    seed = whole_number("seed", settings.seed, at_least=0)
    AGGREGATIONS.choose(settings.aggregation)
    source = load(settings.data, seed=seed)
    on_step(
        f"{source.name}: {len(source.pool)} records for owners, {len(source.buyer)} the buyer's own"
    )
    dealt = deal(settings, source, seed)
    own = pilot(source.buyer, seed=seed)
    on_step(f"the buyer's pilot: {own.ceiling:.1%} without privacy, {own.chance:.1%} by guessing")
    evidence, reference = _evidence(own, seed) if settings.evidence else (None, None)
    card = _card(settings, source, own, samples=dealt.samples, evidence=evidence)
    on_step(f"the card is published: {source.description}")
    if evidence is not None:
        on_step(
            f"the card has evidence: updates are compared with {evidence.records} records of "
            "the buyer's own, and all pay is held until the end"
        )
    owners = simulated_owners(settings, dealt, seed)

    def trade_by(card: TaskCard, reference: bytes | None, **callbacks: Any) -> Trade:
        with embedded_market() as embedded:
            return EmbeddedTrade(
                embedded,
                card,
                card.build(),
                own.validation,
                owners,
                reference=reference,
                **callbacks,
            ).run()

    trade = trade_by(card, reference, on_step=on_step, on_round=on_round)
    trades = [trade] if dealt.without_data else []
    if dealt.without_data and reference is not None:
        on_step("the same trade without evidence, to compare")
        trades.insert(0, trade_by(replace(card, evidence=None), None))
    on_step("the same records without privacy, by scikit-learn")
    report = trade_report(
        trade,
        validation_records=len(own.validation),
        scaling=source.scaling,
        references=_references(trade, dealt, own),
        origin=asdict(settings) | {"owners": dealt.interested, "values": list(settings.values)},
    )
    return report | {
        "without_data": [
            each.owner for each in trade.participants if each.owner < dealt.without_data
        ],
        "comparison": [_compared(each, dealt.without_data) for each in trades],
    }


def _evidence(own: Pilot, seed: int) -> tuple[EvidenceSpec, bytes]:
    """Return what the card says of evidence, and the reference file that it commits to.

    The model is not evaluated on any of those records.
    """
    count = min(len(own.training), _REFERENCE_MAX)
    if count < REFERENCE_RECORDS_MIN:
        raise InvalidData(
            f"evidence needs {REFERENCE_RECORDS_MIN} records of the buyer's own beside those that "
            f"evaluate the model; found {count} (--no-evidence trades without)"
        )
    # A salt from the seed, so that the same seed gives the same card.
    salt = np.random.default_rng([seed, 4]).bytes(SALT_BYTES)
    body = reference_file(own.training.take(np.arange(count)), salt=salt)
    return EvidenceSpec(reference=reference_hash(body), records=count), body


def _references(trade: Trade, dealt: DealtRecords, own: Pilot) -> dict[str, float]:
    """Return the accuracies to compare with; what nobody's records tell is left out."""
    owners = np.array([each.owner for each in trade.participants])
    federation = dealt.to(owners)
    first = federation.offsets[np.count_nonzero(owners < dealt.without_data)]
    references = {"guessing the commonest class": own.chance}
    if first < len(federation.records):
        records = federation.records.take(np.arange(first, len(federation.records)))
        if not records.classes or len(np.unique(records.labels)) > 1:
            level = reference_accuracy(records, own.validation)
            references = {"scikit-learn on all participants' records": level} | references
    return references


def _compared(trade: Trade, without_data: int) -> dict[str, Any]:
    """Return who was paid what by a trade, and how good its model is."""
    earned = {True: 0, False: 0}
    for each in trade.participants:
        earned[each.owner < without_data] += int(each.earned)
    return {
        "evidence": trade.evidence is not None,
        "without_data_micro": earned[True],
        "honest_micro": earned[False],
        "fund_micro": trade_money(trade)["fund_micro"],
        "accuracy": trade.rounds[-1].accuracy,
        "accuracies": [each.accuracy for each in trade.rounds],
    }


def _card(
    settings: DemoSettings,
    source: Source,
    own: Pilot,
    *,
    samples: int,
    evidence: EvidenceSpec | None,
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
        max_rho=max(TaskCard.max_rho, cap_of(settings)),  # so that only an owner's own cap binds
        assumptions=_assumptions(settings, own),
        validation=f"{len(source.buyer) // 2} records of the buyer's own",
        layout=layout_of(source),
        evidence=evidence,
    )


def _assumptions(settings: DemoSettings, own: Pilot) -> Assumptions:
    """Return what a buyer assumes, from half of its own records."""
    low, high = settings.values
    return Assumptions(
        accuracy_value=settings.accuracy_value,
        accuracy="precision" if settings.aggregation == "precision" else "averaged",
        chance=own.chance,
        ceiling=own.ceiling,
        values_low=low,
        values_high=high,
    )
