"""What evidence shows of one device that does not send what it sold: attacks, tried in training.

One more owner joins who acts as if privacy were worth next to nothing to it, and so sells most of
the budget. What it sends is an attack. Each federation is trained twice, without evidence and with
it: a dismissed device is asked no more, and its pay, held until the end, is lost to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.game.presentation import Chart, Line
from fedbourse.learning.aggregation import aggregate
from fedbourse.learning.engines import LocalEngine, Updates
from fedbourse.learning.evidence import EvidenceRule, Reference
from fedbourse.learning.partition import Federation
from fedbourse.learning.records import Records
from fedbourse.learning.rounds import train
from fedbourse.privacy.noise import SimulatedNoise
from fedbourse.study.results import StudyRows
from fedbourse.study.trials import Mean, TrialTask, trial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fedbourse.game.columns import FloatArray
    from fedbourse.learning.models import Model
    from fedbourse.study.trials import Trial

    Gradient = Callable[[FloatArray], FloatArray]
    """What a device sends at a model, before its noise."""

CHEAP = 0.1
"""The value as which the deviating owner acts; all others have at least 1."""
_REFERENCE_STREAM = 0x65766964


@dataclass(frozen=True)
class EvidenceRow:
    """One attack over all seeds."""

    attack: str
    shown: float
    """The part of seeds in which the device had shown data at the end."""
    dismissed: float
    undecided: float
    dismissal_round: float | None
    """The mean round in which it was dismissed, from 1; null where it never was."""
    score: Mean
    """z at the end, or at the dismissal."""
    pay_share: Mean
    """The part of the reward that it is paid without evidence."""
    earned_share: Mean
    """The part of the reward that it is paid with evidence."""
    accuracy_without: Mean
    """On the buyer's records, without evidence."""
    accuracy_with: Mean
    others_dismissed: float
    """The part of all other devices, which are honest, that was dismissed."""
    stands: float
    """The part of seeds in which dismissals count (``EvidenceRule.stands``)."""
    half_of_budget: float
    """The part of seeds in which those who show data hold half of the budget."""


def _own(device: DeviatingDevice) -> Gradient:
    return device.mean_of(device.records)


def _nothing(device: DeviatingDevice) -> Gradient:
    return np.zeros_like


def _shuffled(device: DeviatingDevice) -> Gradient:
    return device.mean_of(device.labelled(device.rng.permutation(device.records.labels)))


def _constant(device: DeviatingDevice) -> Gradient:
    commonest = np.bincount(device.records.labels.astype(np.int64)).argmax()
    return device.mean_of(device.labelled(np.full(len(device.records), float(commonest))))


def _half(device: DeviatingDevice) -> Gradient:
    return device.mean_of(device.records.take(np.arange(len(device.records) // 2)))


def _ten(device: DeviatingDevice) -> Gradient:
    few = device.records.take(np.arange(min(10, len(device.records))))
    mean = device.mean_of(few)
    return lambda model: mean(model) * (len(device.records) / len(few))


def _echo(smoothing: float) -> Callable[[DeviatingDevice], Gradient]:
    def attack(device: DeviatingDevice) -> Gradient:
        steps: list[FloatArray] = []
        last: list[FloatArray] = []

        def gradient(model: FloatArray) -> FloatArray:
            if last:
                step = last[-1] - model
                steps.append(step if not steps else smoothing * steps[-1] + step)
            last[:] = [model]
            if not steps or not (length := np.linalg.norm(steps[-1])):
                return np.zeros_like(model)
            return steps[-1] * (device.clip / 2 / length)

        return gradient

    return attack


ATTACKS: dict[str, Callable[[DeviatingDevice], Gradient]] = {
    "honest": _own,
    "no data": _nothing,
    "shuffled labels": _shuffled,
    "constant labels": _constant,
    "half the data": _half,
    "ten records, amplified": _ten,
    "echo": _echo(0.0),
    "smoothed echo": _echo(0.9),
}
"""What the deviating device sends, by name."""


@dataclass(frozen=True, eq=False)
class DeviatingDevice:
    """What a deviating device has: records, the model's shape, and chance."""

    records: Records
    model: Model
    clip: float
    rng: np.random.Generator

    def labelled(self, labels: FloatArray) -> Records:
        """Return its records with other labels."""
        return Records(self.records.features, labels, self.records.classes)

    def mean_of(self, records: Records) -> Gradient:
        """Return the clipped mean gradient of records, divided by the m that was agreed."""
        samples = np.array([len(self.records)])
        one = Federation(records, np.array([0, len(records)]), samples=samples)
        return lambda model: self.model.clipped_means(model, one, clip=self.clip)[0]


class WatchedEngine:
    """Devices in one process, one of which deviates; with a rule, some are dismissed."""

    def __init__(
        self, one: Trial, reward: float, attack: str, rule: EvidenceRule, *, act: bool, seed: int
    ) -> None:
        terms = one.terms(reward)
        noise = SimulatedNoise(terms, seed=seed)
        self._engine = LocalEngine(
            one.model, one.federation, terms, noise, available=lambda *_: self.remaining
        )
        self.scales = self._engine.scales
        self.deviator = int(np.argmax(one.unit_budgets))
        self._rule, self._act = rule, act
        self._rng = np.random.default_rng([_REFERENCE_STREAM, seed])
        records, clip = one.federation.parts[self.deviator], one.task.clip
        self._gradient = ATTACKS[attack](DeviatingDevice(records, one.model, clip, self._rng))
        count = len(one.reference)
        halves = Federation(one.reference, np.array([0, count // 2, count]))

        def reference(model: FloatArray) -> Reference:
            return Reference(*one.model.clipped_means(model, halves, clip=clip))

        self._reference = reference
        self._first: FloatArray | None = None
        self._others: dict[int, FloatArray] = {}
        self.remaining = np.ones(len(terms), dtype=bool)
        self.evidence = [rule.begin() for _ in terms]
        self.dismissals: dict[int, int] = {}

    def ask(self, number: int, parameters: FloatArray) -> Updates:
        """Ask all who are left, and look at what they send."""
        reference = self._reference(parameters)
        self._first = reference.mean if self._first is None else self._first
        updates = self._engine.ask(number, parameters)
        rows = {owner: row for row, owner in enumerate(updates.owners.tolist())}
        if (row := rows.get(self.deviator)) is not None:
            fresh = self._rng.standard_normal(len(parameters)) * self.scales[self.deviator]
            vectors = updates.vectors.copy()
            vectors[row] = self._gradient(parameters) + fresh
            updates = replace(updates, vectors=vectors)
        for owner, row in rows.items():
            self.evidence[owner] = self.evidence[owner].added(
                updates.vectors[row],
                scale=float(self.scales[owner]),
                reference=reference,
                first=self._first,
                others=self._others.get(owner),
            )
            if owner not in self.dismissals and self._verdict(owner) == "dismissed":
                self.dismissals[owner] = number + 1
        sums = aggregate(
            [updates.vectors],
            self.scales[updates.owners],
            "precision",
            dimension=len(parameters),
        )
        self._others = {
            owner: sums.others(row, updates.vectors[row]) for owner, row in rows.items()
        }
        if self._act:
            self.remaining[list(self.dismissals)] = False
        return updates

    def _verdict(self, owner: int) -> str:
        return self._rule.verdict(self.evidence[owner])

    @property
    def verdict(self) -> str:
        """What evidence says of the deviating device at the end."""
        return "dismissed" if self.deviator in self.dismissals else self._verdict(self.deviator)


@dataclass(frozen=True)
class _Outcome:
    verdict: str
    dismissal_round: int | None
    score: float
    pay_share: float
    accuracy_without: float
    accuracy_with: float
    others_dismissed: float
    stands: bool
    half_of_budget: bool

    @property
    def earned_share(self) -> float:
        return 0.0 if self.verdict == "dismissed" and self.stands else self.pay_share


class EvidenceStudy(StudyRows[EvidenceRow]):
    """What one device that does not do its work earns, attack by attack."""

    def _chart(self) -> Chart:
        x = np.array([row.attack for row in self])
        without = Line("without evidence", x, np.array([row.pay_share.value for row in self]))
        earned = Line("with evidence", x, np.array([row.earned_share.value for row in self]))
        title = "what the deviating device is paid"
        return Chart(title, "what it sends", "part of the reward", (without, earned), "points")


def evidence_study(
    task: TrialTask,
    rule: EvidenceRule,
    *,
    reward: float,
    reference_records: int,
    seeds: int,
    first_seed: int = 0,
    attacks: Sequence[str] = tuple(ATTACKS),
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> EvidenceStudy:
    """Try every attack on every seed's federation, without evidence and with it."""
    outcomes: dict[str, list[_Outcome]] = {attack: [] for attack in attacks}
    of = seeds * len(attacks)
    for k in range(seeds):
        one = trial(task, seed=first_seed + k, cheapest=CHEAP, reference_records=reference_records)
        for number, attack in enumerate(attacks):
            progress(k * len(attacks) + number, of)
            outcomes[attack].append(_tried(one, reward, attack, rule, seed=first_seed + k))
    progress(of, of)
    return EvidenceStudy(tuple(_row(attack, tries) for attack, tries in outcomes.items()))


def _tried(one: Trial, reward: float, attack: str, rule: EvidenceRule, *, seed: int) -> _Outcome:
    runs = []
    for act in (False, True):
        engine = WatchedEngine(one, reward, attack, rule, act=act, seed=seed)
        run = train(
            engine,
            one.model,
            one.validation,
            step_size=one.task.step_size,
            rounds=one.task.rounds,
            aggregation="precision",
            seed=one.seed,
        )
        runs.append(run.accuracy)
    others = len(engine.evidence) - 1
    shown = [rule.verdict(each) == "shown" for each in engine.evidence]
    wrongly = len(engine.dismissals.keys() - {engine.deviator})
    return _Outcome(
        verdict=engine.verdict,
        dismissal_round=engine.dismissals.get(engine.deviator),
        score=engine.evidence[engine.deviator].plain.score,
        pay_share=float(one.unit_budgets.max() / one.unit_budgets.sum()),
        accuracy_without=runs[0],
        accuracy_with=runs[1],
        others_dismissed=wrongly / max(1, others),
        stands=rule.stands(engine.evidence),
        half_of_budget=bool(one.unit_budgets[shown].sum() >= one.unit_budgets.sum() / 2),
    )


def _row(attack: str, tries: list[_Outcome]) -> EvidenceRow:
    verdicts = [each.verdict for each in tries]
    rounds = [each.dismissal_round for each in tries if each.dismissal_round is not None]
    return EvidenceRow(
        attack=attack,
        shown=verdicts.count("shown") / len(tries),
        dismissed=verdicts.count("dismissed") / len(tries),
        undecided=verdicts.count("undecided") / len(tries),
        dismissal_round=float(np.mean(rounds)) if rounds else None,
        score=Mean.of([each.score for each in tries]),
        pay_share=Mean.of([each.pay_share for each in tries]),
        earned_share=Mean.of([each.earned_share for each in tries]),
        accuracy_without=Mean.of([each.accuracy_without for each in tries]),
        accuracy_with=Mean.of([each.accuracy_with for each in tries]),
        others_dismissed=float(np.mean([each.others_dismissed for each in tries])),
        stands=float(np.mean([each.stands for each in tries])),
        half_of_budget=float(np.mean([each.half_of_budget for each in tries])),
    )
