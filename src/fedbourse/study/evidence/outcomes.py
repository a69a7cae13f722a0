"""What came of one scenario, and of one row's scenarios over all seeds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.learning.rounds import train
from fedbourse.study.evidence.watched_engine import WatchedEngine
from fedbourse.study.trials import Mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedbourse.learning.evidence import Population
    from fedbourse.study.evidence.scenario import Scenario


@dataclass(frozen=True)
class Outcome:
    """One seed: parts and means over the watched devices."""

    budget: float
    """The mean rho of a watched device."""
    variance: float
    """W over all rounds where nobody is dismissed: what there is to judge by."""
    shown: float
    dismissed: float
    undecided: float
    dismissal_rounds: tuple[int, ...]
    ever_shown: float
    """The part that had shown data after any round, were nobody dismissed."""
    show_rounds: tuple[int, ...]
    score: float
    """z after all rounds, were nobody dismissed."""
    echo_score: float
    echoes: float
    """The part whose updates repeat the model's own steps (``EvidenceRule.is_echo``)."""
    pay_share: float
    earned_share: float
    weight_without: float
    weight_with: float
    accuracy_without: float
    accuracy_with: float
    others_dismissed: float | None
    """None where all devices are watched."""
    others_pay_lost: float | None
    stands: float
    stands_without_best: float
    stands_by_rest: float
    half_of_budget: float


def outcome(scene: Scenario) -> Outcome:
    """Train with evidence and without it; once where nobody is dismissed, as it is the same."""
    acting = WatchedEngine(scene, act=True)
    accuracy_with = _trained(scene, acting)
    free, accuracy_without = acting, accuracy_with
    if acting.dismissals:
        free = WatchedEngine(scene, act=False)
        accuracy_without = _trained(scene, free)
    rule, budgets, watched = scene.rule, scene.budgets, scene.watched.tolist()
    verdicts = [acting.verdict(i) for i in watched]
    stands = not acting.void and rule.stands(acting.evidence)
    lost = np.zeros(len(budgets), dtype=bool)
    lost[list(acting.dismissals)] = stands
    others = np.setdiff1d(np.arange(len(budgets)), scene.watched)
    fallen = np.isin(others, list(acting.dismissals))
    shown = np.array([acting.verdict(i) == "shown" for i in range(len(budgets))])
    mine = budgets[watched]
    return Outcome(
        budget=float(mine.mean()),
        variance=float(np.mean([free.evidence[i].plain.w for i in watched])),
        shown=verdicts.count("shown") / len(watched),
        dismissed=verdicts.count("dismissed") / len(watched),
        undecided=verdicts.count("undecided") / len(watched),
        dismissal_rounds=tuple(acting.dismissals[i] for i in watched if i in acting.dismissals),
        ever_shown=float(np.mean([i in free.shows for i in watched])),
        show_rounds=tuple(free.shows[i] for i in watched if i in free.shows),
        score=float(np.mean([free.evidence[i].score for i in watched])),
        echo_score=float(np.mean([free.evidence[i].echo.score for i in watched])),
        echoes=float(np.mean([rule.is_echo(free.evidence[i]) for i in watched])),
        pay_share=float(mine.sum() / budgets.sum()),
        earned_share=float(mine[~lost[watched]].sum() / budgets.sum()),
        weight_without=float(np.mean(free.weights)),
        weight_with=float(np.mean(acting.weights)),
        accuracy_without=accuracy_without,
        accuracy_with=accuracy_with,
        others_dismissed=float(fallen.mean()) if len(others) else None,
        others_pay_lost=(
            float(budgets[others][lost[others]].sum() / budgets[others].sum())
            if len(others)
            else None
        ),
        stands=float(stands),
        stands_without_best=float(_stands_without_best(acting)),
        stands_by_rest=float(_stands_by_rest(acting)),
        half_of_budget=float(budgets[shown].sum() >= budgets.sum() / 2),
    )


def _stands_without_best(engine: WatchedEngine) -> bool:
    """Return whether dismissals would count by all devices but the one that shows most."""
    best = int(np.argmax([each.likelihood for each in engine.evidence]))
    rest = [each for i, each in enumerate(engine.evidence) if i != best]
    return not engine.void and engine.rule.stands(rest)


def _stands_by_rest(engine: WatchedEngine) -> bool:
    """Return whether they would count by the test without the first, nearly public direction."""
    rest = [replace(each, plain=each.rest) for each in engine.evidence]
    return not engine.void and engine.rule.stands(rest)


def _trained(scene: Scenario, engine: WatchedEngine) -> float:
    one = scene.trial
    run = train(
        engine,
        one.model,
        one.validation,
        step_size=one.task.step_size,
        rounds=one.task.rounds,
        aggregation="precision",
        seed=one.seed,
    )
    return run.accuracy


@dataclass(frozen=True)
class EvidenceRow:
    """One row of a sweep over all seeds."""

    sweep: str
    point: str
    """Where the row is in its sweep; empty in those over deviations."""
    sends: str
    """What the watched devices send."""
    population: Population
    budget: Mean
    variance: Mean
    shown: float
    """The part of watched devices that had shown data at the end."""
    dismissed: float
    undecided: float
    dismissal_round: float | None
    """The mean round in which one was dismissed, from 1; null where none was."""
    ever_shown: float
    show_round: float | None
    score: Mean
    echo_score: Mean
    echoes: float
    pay_share: Mean
    """The part of the reward that they are paid without evidence."""
    earned_share: Mean
    """The part of the reward that they are paid with evidence."""
    weight_without: Mean
    weight_with: Mean
    accuracy_without: Mean
    """On the buyer's records, without evidence."""
    accuracy_with: Mean
    others_dismissed: float | None
    """The part of all other devices, which are honest, that was dismissed."""
    others_pay_lost: float | None
    """The part of the others' pay that is lost to them."""
    stands: float
    """The part of seeds in which dismissals count (``EvidenceRule.stands``)."""
    stands_without_best: float
    """The same, were the device that shows most left out: a stricter rule, not the market's."""
    stands_by_rest: float
    """The same, were the others' data to show in the second test: a stricter rule, too."""
    half_of_budget: float
    """The part of seeds in which those who show data hold half of the budget."""

    @classmethod
    def of(
        cls,
        outcomes: Sequence[Outcome],
        *,
        sweep: str,
        point: str,
        sends: str,
        population: Population,
    ) -> EvidenceRow:
        """Return the means over seeds."""

        def column(name: str) -> list[float]:
            return [value for each in outcomes if (value := getattr(each, name)) is not None]

        def mean(name: str) -> float:
            return float(np.mean(column(name)))

        def interval(name: str) -> Mean:
            return Mean.of(column(name))

        return cls(
            sweep=sweep,
            point=point,
            sends=sends,
            population=population,
            dismissal_round=_mean_round([r for each in outcomes for r in each.dismissal_rounds]),
            show_round=_mean_round([r for each in outcomes for r in each.show_rounds]),
            others_dismissed=mean("others_dismissed") if column("others_dismissed") else None,
            others_pay_lost=mean("others_pay_lost") if column("others_pay_lost") else None,
            budget=interval("budget"),
            variance=interval("variance"),
            shown=mean("shown"),
            dismissed=mean("dismissed"),
            undecided=mean("undecided"),
            ever_shown=mean("ever_shown"),
            score=interval("score"),
            echo_score=interval("echo_score"),
            echoes=mean("echoes"),
            pay_share=interval("pay_share"),
            earned_share=interval("earned_share"),
            weight_without=interval("weight_without"),
            weight_with=interval("weight_with"),
            accuracy_without=interval("accuracy_without"),
            accuracy_with=interval("accuracy_with"),
            stands=mean("stands"),
            stands_without_best=mean("stands_without_best"),
            stands_by_rest=mean("stands_by_rest"),
            half_of_budget=mean("half_of_budget"),
        )


def _mean_round(rounds: list[int]) -> float | None:
    return float(np.mean(rounds)) if rounds else None
