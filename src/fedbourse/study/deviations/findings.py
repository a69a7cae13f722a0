"""The study itself: for each case the best that search finds, before the rules and after them."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.game.presentation import Chart, Line
from fedbourse.study.deviations.buyer_cases import buyer_cases
from fedbourse.study.deviations.evidence_cases import buyer_evidence_cases, owner_evidence_cases
from fedbourse.study.deviations.old_protocol import play_old_protocol
from fedbourse.study.deviations.owner_cases import owner_cases
from fedbourse.study.deviations.search import Point, search
from fedbourse.study.results import StudyRows, columns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fedbourse.game.presentation import Columns
    from fedbourse.study.deviations.cases import Case
    from fedbourse.study.deviations.play import Play, Scenario, TradeOutcome

OLD_EFFORT = 10
"""How many times as many plays the old protocol gets: a model costs next to nothing."""
NOTHING = 1e-4
"""Gains below this are rounding: to micro-credits, and to a bracket of a millionth of P."""


@dataclass(frozen=True)
class DeviationResult:
    """The best that a deviator got under one protocol."""

    score: float
    """Its utility; below zero, what the buyer paid for the budget that honest owners sell."""
    point: Point
    """What it chose; nothing where it plays as intended."""
    sold: float
    """The budget that all names delivered, in rho."""
    owners_utility: float
    """What those have in all who play as intended."""
    refusals: tuple[str, ...]
    gain: float = 0.0
    """Credits more than as intended; 0 where nothing tried was better."""
    plays: int = 1


@dataclass(frozen=True)
class DeviationFinding:
    """One case, under both protocols."""

    case: Case
    intended: DeviationResult
    """What comes about without the deviation, under the rules."""
    before: DeviationResult | None
    after: DeviationResult


def all_cases() -> dict[str, Case]:
    """Return every case by its key, in the order of the table."""
    rows = (*owner_cases(), *owner_evidence_cases(), *buyer_cases(), *buyer_evidence_cases())
    return {case.key: case for case in rows}


def best_of(
    case: Case, play: Play, *, plays: int, seed: int
) -> tuple[DeviationResult, DeviationResult]:
    """Return what a case is compared with, and the best that search finds, under one protocol.

    Not to deviate is always possible: where nothing is better, that is the best.
    """
    intended = _result(case, case.intended, play(case.intended))
    results: dict[Point, DeviationResult] = {}

    def score(point: Point) -> float:
        scenario = case.scenario(point)
        results[point] = _result(case, scenario, play(scenario), point=point)
        return results[point].score

    rng = np.random.default_rng([seed, zlib.crc32(case.key.encode())])
    best = results[search(score, case.axes, plays=plays, rng=rng)]
    gain = best.score - intended.score
    if gain > NOTHING:
        return intended, replace(best, gain=gain, plays=len(results))
    return intended, replace(intended, refusals=best.refusals, plays=len(results))


def _result(
    case: Case, scenario: Scenario, outcome: TradeOutcome, *, point: Point = ()
) -> DeviationResult:
    return DeviationResult(
        score=case.score(scenario, outcome),
        point=point,
        sold=outcome.sold(*outcome.allocations),
        owners_utility=sum(outcome.utility(name, value=v) for name, v in case.owners.items()),
        refusals=outcome.refusals,
    )


class DeviationStudy(StudyRows[DeviationFinding]):
    """What each deviation gains, under the old protocol and now."""

    def plot(self, axes: Any = None) -> Any:
        """Draw all deviations and return the figure; or what is gained now, into axes."""
        from fedbourse.study.deviations.figure import deviations_figure

        return deviations_figure(self) if axes is None else super().plot(axes)

    def _rows(self) -> Columns:
        from fedbourse.study.deviations.tables import finding_row

        return columns_of([finding_row(finding) for finding in self])

    def _chart(self) -> Chart:
        x = np.array([finding.case.key for finding in self])
        y = np.array([finding.after.gain for finding in self])
        title = "the best that search found"
        return Chart(title, "deviation", "gain, credits", (Line("gain", x, y),), "points")


def deviation_study(
    play: Play,
    *,
    plays: int,
    seed: int = 0,
    cases: Sequence[Case],
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> DeviationStudy:
    """Search each case under the old protocol, and under the one that ``play`` carries out.

    ``cases`` are of ``all_cases``. ``fedbourse.embedded.deviation_market`` plays against the
    market's own commands: ``with deviation_market() as market``, and ``market.play`` is the play.
    """
    findings = []
    for done, case in enumerate(cases):
        progress(done, len(cases))
        before = None
        if case.was_possible:
            _, before = best_of(case, play_old_protocol, plays=OLD_EFFORT * plays, seed=seed)
        count = max(1, math.ceil(case.effort * plays))
        intended, after = best_of(case, play, plays=count, seed=seed)
        findings.append(DeviationFinding(case, intended, before, after))
    progress(len(cases), len(cases))
    return DeviationStudy(tuple(findings))
