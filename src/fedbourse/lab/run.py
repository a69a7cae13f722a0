"""Every mechanism with every profile and buyer, on the same draws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidInput
from fedbourse.game import MECHANISMS, Mechanism, Outcome, Purchase, choose_mechanism, run_mechanism
from fedbourse.game.mechanisms import first_best
from fedbourse.game.mechanisms.deviations import best_misreport, best_names
from fedbourse.lab.bounds import broken_bounds, broken_promises, broken_truth
from fedbourse.lab.buyers import LabBuyer
from fedbourse.lab.profiles import ValueDraw, ValueProfile, checked_profile
from fedbourse.lab.rows import LabRecord, LabRow
from fedbourse.lab.training import measured_accuracy, noise_factor_of
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fedbourse.study.trials import TrialTask

PILOT_DRAWS = 12
"""Draws on which a buyer chooses its reward and lot."""
_PILOT = 1 << 32
"""Added to the seed of these, so that no draw chooses and measures."""
_TRIED = 6
"""Owners of a draw that deviations are searched for."""


@dataclass(frozen=True)
class _Counts:
    owners: int
    draws: int
    deviation_draws: int
    seed: int


def run_lab(
    *,
    mechanisms: Iterable[str] | Mapping[str, object] = tuple(MECHANISMS),
    profiles: Iterable[str | ValueProfile] = ("uniform", "lognormal", "pareto"),
    buyers: Iterable[LabBuyer] = (LabBuyer(),),
    owners: int = 20,
    draws: int = 100,
    deviation_draws: int = 3,
    seed: int = 0,
    training: TrialTask | None = None,
    training_draws: int = 3,
    noise_coefficient: float = 1.0,
    progress: Callable[[int, int, str], None] = lambda done, of, what: None,
) -> LabRecord:
    """Compare mechanisms on the same owners, for the same buyers.

    ``mechanisms`` are names, or a mapping from names to objects of one's own that follow the
    protocol (``fedbourse.Mechanism``). ``profiles`` are names of ``PROFILES`` or objects. Where
    ``training`` is given, the budgets of the first draws are sold for real to a training of it,
    and the buyers' noise factor is that of the training times ``noise_coefficient``, which a pilot
    measures (``fedbourse study calibrate``). Nothing is raised for a broken promise:
    see ``LabRecord.check``.

    >>> from fedbourse.lab import run_lab
    >>> record = run_lab(mechanisms=["clock", "second-price"], profiles=["uniform"], draws=10)
    >>> [round(row.sellers) for row in record.rows]
    [16, 1]
    """
    counts = _Counts(
        whole_number("owners", owners, at_least=2),
        whole_number("draws", draws, at_least=2),
        whole_number("deviation_draws", deviation_draws, at_least=0),
        whole_number("seed", seed, at_least=0),
    )
    rules = _checked(mechanisms)
    places = [checked_profile(profile) for profile in profiles]
    people = tuple(buyers)
    if not (rules and places and people):
        raise InvalidInput("the lab needs at least one mechanism, one profile and one buyer")
    if training is not None:
        training = replace(training, owners=counts.owners)
        coefficient = number("noise_coefficient", noise_coefficient, above=0)
        factor = coefficient * noise_factor_of(training, seed=counts.seed)
        people = tuple(replace(buyer, noise_factor=factor) for buyer in people)
    rows: list[LabRow] = []
    of = len(rules) * len(places) * len(people)
    for profile in places:
        drawn = profile.draws(owners=counts.owners, count=counts.draws, seed=counts.seed)
        pilot = profile.draws(owners=counts.owners, count=PILOT_DRAWS, seed=counts.seed + _PILOT)
        for buyer in people:
            for name, mechanism in rules.items():
                progress(len(rows), of, f"{name}, {profile.name}")
                purchase = buyer.purchase(mechanism, profile.prior, pilot)
                row, sales = _row((name, mechanism), profile, (buyer, purchase), drawn, counts)
                if training is not None:
                    sold = [sale.budgets for sale in sales[:training_draws]]
                    row = replace(row, accuracy=measured_accuracy(training, sold, counts.seed))
                rows.append(row)
    progress(of, of, "done")
    return LabRecord(
        rows=tuple(rows),
        buyers=people,
        owners=counts.owners,
        draws=counts.draws,
        deviation_draws=counts.deviation_draws,
        seed=counts.seed,
    )


def _checked(mechanisms: Iterable[str] | Mapping[str, object]) -> dict[str, Mechanism]:
    if isinstance(mechanisms, str):
        raise InvalidInput(f"mechanisms must be a list of names; found {mechanisms!r:.60}")
    named = mechanisms if hasattr(mechanisms, "items") else {name: name for name in mechanisms}
    return {name: choose_mechanism(each) for name, each in named.items()}


def _row(
    named: tuple[str, Mechanism],
    profile: ValueProfile,
    bought: tuple[LabBuyer, Purchase],
    drawn: list[ValueDraw],
    counts: _Counts,
) -> tuple[LabRow, list[Outcome]]:
    (name, mechanism), (buyer, purchase) = named, bought
    purchases = [replace(purchase, cap=draw.cap) for draw in drawn]
    sales = [
        run_mechanism(mechanism, draw.values, each, seed=counts.seed)
        for draw, each in zip(drawn, purchases, strict=True)
    ]
    broken: dict[str, None] = {}
    for draw, each, sale in zip(drawn, purchases, sales, strict=True):
        for problems in (
            broken_promises(mechanism, draw.values, each, sale),
            broken_bounds(
                name if mechanism is MECHANISMS.get(name) else "", draw.values, each, sale
            ),
        ):
            broken |= dict.fromkeys(problems)
    lie, names = _deviations(mechanism, drawn, purchases, sales, counts)
    broken |= dict.fromkeys(broken_truth(mechanism, lie or 0.0, purchase))
    utilities = np.array([e.utility(sale) for e, sale in zip(purchases, sales, strict=True)])
    parts = [
        sale.total_budget / first_best(draw.values, replace(each, reward=sale.spend))
        for draw, each, sale in zip(drawn, purchases, sales, strict=True)
        if sale.spend > 0
    ]
    row = LabRow(
        mechanism=name,
        profile=profile.name,
        buyer=buyer.name,
        reward=purchase.reward if mechanism.guarantees.within_reward else None,
        lot=purchase.lot,
        budget=_mean(sale.total_budget for sale in sales),
        first_best=_mean(parts) if parts else 0.0,
        spend=_mean(sale.spend for sale in sales),
        sellers=_mean(sale.sellers for sale in sales),
        buyer_utility=float(utilities.mean()),
        buyer_utility_error=float(utilities.std(ddof=1) / np.sqrt(len(utilities))),
        owners_utility=_mean(
            float(sale.utilities(draw.values).sum())
            for draw, sale in zip(drawn, sales, strict=True)
        ),
        quality=_mean(e.quality(sale.budgets) for e, sale in zip(purchases, sales, strict=True)),
        misreport_gain=lie,
        names_gain=names,
        accuracy=None,
        broken=tuple(broken)[:5],
    )
    return row, sales


def _mean(numbers: Iterable[float]) -> float:
    return float(np.mean(list(numbers)))


def _deviations(
    mechanism: Mechanism,
    drawn: list[ValueDraw],
    purchases: list[Purchase],
    sales: list[Outcome],
    counts: _Counts,
) -> tuple[float | None, float | None]:
    """Return the most that anybody gained by a misreport, and under several names."""
    if not counts.deviation_draws:
        return None, None
    lies, names = [0.0], [0.0]
    for draw, purchase, sale in list(zip(drawn, purchases, sales, strict=True))[
        : counts.deviation_draws
    ]:
        tried = _owners_tried(draw.values, sale)
        game = mechanism, draw.values, purchase
        lies.append(best_misreport(*game, owners=tried, seed=counts.seed).amount)
        names.append(best_names(*game, owners=tried, seed=counts.seed).amount)
    return max(lies), max(names)


def _owners_tried(values: np.ndarray, sale: Outcome) -> list[int]:
    """Return some owners: the cheapest, those beside the last seller, and the highest-value one."""
    order = np.argsort(values, kind="stable")
    last = max(sale.sellers, 1)
    places = {0, 1, last - 1, last, (last - 1) // 2, len(values) - 1}
    return [int(order[place]) for place in sorted(places) if place < len(values)][:_TRIED]
