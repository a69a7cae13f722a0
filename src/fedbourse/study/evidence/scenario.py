"""One seed's federation with some devices that are watched: what all sweeps are made of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedbourse.errors import InvalidInput
from fedbourse.learning.data import load
from fedbourse.learning.evidence import EvidenceRule
from fedbourse.learning.partition import Federation
from fedbourse.learning.records import Records
from fedbourse.privacy.terms import Terms
from fedbourse.study.evidence import attacks
from fedbourse.study.evidence.attacks import DeviatingDevice
from fedbourse.study.trials import TrialTask, trial

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedbourse.game.columns import FloatArray, IntArray
    from fedbourse.learning.evidence import Population
    from fedbourse.learning.sources import Source
    from fedbourse.study.evidence.attacks import Attack, Gradient
    from fedbourse.study.trials import Trial

CHEAP = 0.1
"""The value as which a deviating owner acts; all others have at least 1."""
_STREAM = 0x65766964  # keeps attacks apart from whatever else is drawn from a seed

Watched = Literal["cheapest", "third", "all"]
"""Who is watched: one more owner who acts as if privacy were worth next to nothing to it; a third
of the devices, which get one budget; or everybody."""
ReferenceKind = Literal["true", "shuffled", "swapped"]
"""The buyer's reference: true, with labels dealt at random, or with each label the next class's."""
Names = Literal["one", "three", "as-others", "majority"]
"""Under how many names a watched device's budget is sold."""


@dataclass(frozen=True)
class Deviation:
    """What a watched device does, and what comes with it."""

    attack: Attack
    reference: ReferenceKind = "true"
    names: Names = "one"


DEVIATIONS: Mapping[str, Deviation] = {
    "honest": Deviation(attacks.own),
    "no data": Deviation(attacks.nothing),
    "shuffled labels": Deviation(attacks.shuffled),
    "constant labels": Deviation(attacks.constant),
    "other classes": Deviation(attacks.other_classes),
    "another group": Deviation(attacks.another_group),
    "half the data": Deviation(attacks.half),
    "ten records, amplified": Deviation(attacks.ten),
    "echo": Deviation(attacks.echo(0.0)),
    "smoothed echo": Deviation(attacks.echo(0.9)),
    "base-rate guess": Deviation(attacks.base_rate_guess),
    "guess, then echo": Deviation(attacks.guess_then_echo),
    "score feedback": Deviation(attacks.feedback(with_guess=False)),
    "guess, then feedback": Deviation(attacks.feedback(with_guess=True)),
    "no data, three names": Deviation(attacks.nothing, names="three"),
    "no data, most names": Deviation(attacks.nothing, names="majority"),
    "shuffled reference, honest": Deviation(attacks.own, "shuffled"),
    "shuffled reference, puppet": Deviation(attacks.puppet, "shuffled"),
    "swapped reference, puppet": Deviation(attacks.puppet, "swapped"),
    "swapped reference, half puppets": Deviation(attacks.puppet, "swapped", "as-others"),
}
"""What watched devices do, by name."""


@dataclass(frozen=True)
class Setting:
    """What a scenario depends on but its seed and deviation."""

    task: TrialTask
    reward: float
    reference_records: int
    alpha: float
    beta: float
    k0: float
    population: Population = "like-reference"
    watched: Watched = "cheapest"
    budget_factor: float = 1.0
    """Where a third is watched: its budgets, as a multiple of the mean budget."""

    @property
    def rule(self) -> EvidenceRule:
        """The market's rule, with all rounds in one block."""
        return EvidenceRule(
            alpha=self.alpha,
            beta=self.beta,
            k0=self.k0,
            rounds=self.task.rounds,
            population=self.population,
        )


@dataclass
class Trials:
    """The trials of one seed: data are loaded once, and each trial is drawn once."""

    seed: int
    sources: dict[str, Source] = field(default_factory=dict)
    drawn: dict[tuple[str, bool], Trial] = field(default_factory=dict)

    def of(self, setting: Setting) -> Trial:
        """Return the trial of a setting, with its rounds and its reference records."""
        task, cheapest = setting.task, setting.watched == "cheapest"
        key = task.partition, cheapest
        if key not in self.drawn:
            self.drawn[key] = trial(
                task,
                seed=self.seed,
                cheapest=CHEAP if cheapest else None,
                reference_records=_ALL,
                source=self._source(task.data),
            )
        one = self.drawn[key]
        last = np.arange(len(one.reference))[-setting.reference_records :]
        return replace(one, task=task, reference=one.reference.take(last))

    def _source(self, data: str) -> Source:
        if data not in self.sources:
            self.sources[data] = load(data, seed=self.seed)
            if not self.sources[data].buyer.classes:
                raise InvalidInput(
                    f"data must have classes to predict; the labels of {data} are numbers"
                )
        return self.sources[data]


_ALL = 2**40  # as many as the buyer has


@dataclass(frozen=True, eq=False)
class Scenario:
    """A federation in which some devices are watched: the last ones, in the order of devices."""

    trial: Trial
    rule: EvidenceRule
    terms: list[Terms]
    federation: Federation
    watched: IntArray
    gradients: Mapping[int, Gradient]
    """What watched devices send instead of their clipped means."""
    reference: Records

    @property
    def budgets(self) -> FloatArray:
        """Each device's rho."""
        return np.array([each.rho for each in self.terms])


def scenario(one: Trial, setting: Setting, deviation: Deviation) -> Scenario:
    """Put a deviation into a trial."""
    rng = np.random.default_rng([_STREAM, one.seed])
    count = len(one.unit_budgets)
    budgets = one.unit_budgets * setting.reward
    watched = {
        "cheapest": np.array([int(np.argmax(budgets))]),
        "third": np.arange(max(1, count // 3)),
        "all": np.arange(count),
    }[setting.watched]
    if setting.watched == "third":
        budgets[watched] = setting.budget_factor * budgets.mean()
    others = np.setdiff1d(np.arange(count), watched)
    names = {"one": 1, "three": 3, "as-others": len(others), "majority": len(others) + 1}
    k = names[deviation.names]
    order = np.concatenate([others, np.repeat(watched, k)])
    rho = budgets[order]
    rho[len(others) :] /= k
    watched = np.arange(len(others), len(order))
    federation = _chosen(one.federation, order)
    scene = Scenario(
        trial=one,
        rule=setting.rule,
        terms=_terms(one, rho, federation),
        federation=federation,
        watched=watched,
        gradients={},
        reference=_reference(one.reference, deviation.reference, rng),
    )
    if deviation.attack is attacks.own:
        return scene
    gradients = {i: deviation.attack(_device(scene, i, rng)) for i in watched.tolist()}
    return replace(scene, gradients=gradients)


def _device(scene: Scenario, i: int, rng: np.random.Generator) -> DeviatingDevice:
    one, budgets = scene.trial, scene.budgets
    return DeviatingDevice(
        records=scene.federation.parts[i],
        spare=one.spare,
        buyer=one.validation,
        model=one.model,
        clip=one.task.clip,
        step_size=one.task.step_size,
        weight=float(budgets[i] / budgets.sum()),
        rng=rng,
    )


def _chosen(federation: Federation, order: IntArray) -> Federation:
    parts = [federation.parts[i] for i in order.tolist()]
    records = Records(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.labels for part in parts]),
        federation.records.classes,
    )
    return Federation(records, np.cumsum([0, *map(len, parts)]))


def _terms(one: Trial, budgets: FloatArray, federation: Federation) -> list[Terms]:
    task = one.task
    return [
        Terms("study", float(rho), task.rounds, one.model.dimension, int(m), task.clip)
        for rho, m in zip(budgets, federation.sizes, strict=True)
    ]


def _reference(records: Records, kind: ReferenceKind, rng: np.random.Generator) -> Records:
    if kind == "true":
        return records
    labels = (
        rng.permutation(records.labels)
        if kind == "shuffled"
        else (records.labels + 1) % records.classes
    )
    return Records(records.features, labels, records.classes)
