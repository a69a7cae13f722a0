"""What is tried: deviations one by one, owners who differ, and one number of the rule at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidInput
from fedbourse.game.presentation import Chart, Line
from fedbourse.learning.evidence import POPULATIONS
from fedbourse.study.evidence.outcomes import EvidenceRow, Outcome, outcome
from fedbourse.study.evidence.scenario import DEVIATIONS, Setting, Trials, scenario
from fedbourse.study.results import StudyRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PARTITIONS = {
    "iid": "like the reference",
    "dirichlet:1": "Dirichlet 1",
    "dirichlet:0.3": "Dirichlet 0.3",
    "dirichlet:0.1": "Dirichlet 0.1",
    "dirichlet:1e-06": "one class each",
}
BUDGET_FACTORS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0)
REFERENCE_SIZES = (30, 100, 300, 1000, 3000)
ROUNDS = (10, 25, 50, 100, 200)
K0S = (0.1, 0.25, 0.5, 0.75, 1.0)
_BOTH = ("honest", "no data")


@dataclass(frozen=True)
class Case:
    """A row: one deviation in one setting."""

    sweep: str
    point: str
    sends: str
    setting: Setting


def _attacks(setting: Setting) -> Iterator[Case]:
    for name in DEVIATIONS:
        yield Case("attacks", "", name, setting)


def _ordinary_budgets(setting: Setting) -> Iterator[Case]:
    for name, deviation in DEVIATIONS.items():
        if deviation.names == "one":
            yield Case("ordinary-budgets", "", name, replace(setting, watched="third"))


def _attacks_by_class(setting: Setting) -> Iterator[Case]:
    for name in DEVIATIONS:
        yield Case("attacks-by-class", "", name, replace(setting, population="any-class-mixture"))


def _honest_owners(setting: Setting) -> Iterator[Case]:
    for population in POPULATIONS:
        for scheme, point in PARTITIONS.items():
            task = replace(setting.task, partition=scheme)
            yield Case(
                "honest-owners",
                point,
                "honest",
                replace(setting, task=task, watched="all", population=population),
            )


def _budget(setting: Setting) -> Iterator[Case]:
    for factor in BUDGET_FACTORS:
        yield from _both("budget", f"{factor:g} x mean", replace(setting, budget_factor=factor))


def _reference(setting: Setting) -> Iterator[Case]:
    for size in REFERENCE_SIZES:
        yield from _both("reference", f"{size} records", replace(setting, reference_records=size))


def _rounds(setting: Setting) -> Iterator[Case]:
    for rounds in ROUNDS:
        task = replace(setting.task, rounds=rounds)
        yield from _both("rounds", f"T = {rounds}", replace(setting, task=task))


def _k0(setting: Setting) -> Iterator[Case]:
    for k0 in K0S:
        yield from _both("k0", f"k0 = {k0:g}", replace(setting, k0=k0))


def _both(sweep: str, point: str, setting: Setting) -> Iterator[Case]:
    for name in _BOTH:
        yield Case(sweep, point, name, replace(setting, watched="third"))


SWEEPS: dict[str, Callable[[Setting], Iterator[Case]]] = {
    "attacks": _attacks,
    "ordinary-budgets": _ordinary_budgets,
    "attacks-by-class": _attacks_by_class,
    "honest-owners": _honest_owners,
    "budget": _budget,
    "reference": _reference,
    "rounds": _rounds,
    "k0": _k0,
}
"""The cases of each sweep, by name."""


class EvidenceStudy(StudyRows[EvidenceRow]):
    """What deviating and differing devices show, and what they are paid, case by case."""

    def _chart(self) -> Chart:
        x = np.array([f"{row.sends} {row.point}".strip() for row in self])
        without = Line("without evidence", x, np.array([row.pay_share.value for row in self]))
        earned = Line("with evidence", x, np.array([row.earned_share.value for row in self]))
        title = "what the watched devices are paid"
        return Chart(title, "what they send", "part of the reward", (without, earned), "points")


def evidence_study(
    setting: Setting,
    *,
    seeds: int,
    first_seed: int = 0,
    sweeps: Sequence[str] = ("attacks",),
    deviations: Sequence[str] = (),
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> EvidenceStudy:
    """Try every case of the sweeps on every seed; ``deviations`` leaves out all others."""
    cases = [
        case
        for sweep in sweeps
        for case in SWEEPS[sweep](setting)
        if not deviations or case.sends in deviations
    ]
    if not cases:
        raise InvalidInput(
            f"no row of {', '.join(sweeps)} sends {', '.join(deviations)}; choose another sweep"
        )
    tries: list[list[Outcome]] = [[] for _ in cases]
    of = seeds * len(cases)
    for k in range(seeds):
        trials = Trials(first_seed + k)
        for number, case in enumerate(cases):
            progress(k * len(cases) + number, of)
            one = trials.of(case.setting)
            if case.setting.reference_records > len(one.reference) and case.sweep == "reference":
                continue  # the buyer has no more
            scene = scenario(one, case.setting, DEVIATIONS[case.sends])
            tries[number].append(outcome(scene))
    progress(of, of)
    return EvidenceStudy(
        tuple(
            EvidenceRow.of(
                outcomes,
                sweep=case.sweep,
                point=case.point,
                sends=case.sends,
                population=case.setting.population,
            )
            for case, outcomes in zip(cases, tries, strict=True)
            if outcomes
        )
    )
