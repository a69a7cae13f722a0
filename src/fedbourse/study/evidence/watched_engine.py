"""Devices in one process whose updates are compared with the reference, as the market does it.

When a round closes, whoever falls to the bound is dismissed: its update weighs nothing from that
round on, and it is asked no more. Where more than half of the devices fall, evidence is void: all
are asked again, and nobody is dismissed any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedbourse.learning.aggregation import aggregate
from fedbourse.learning.engines import Updates
from fedbourse.privacy.noise import SimulatedNoise
from fedbourse.study.evidence.attacks import RoundView

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray
    from fedbourse.learning.reference_gradients import Reference
    from fedbourse.study.evidence.scenario import Scenario


class WatchedEngine:
    """The devices of a scenario; ``act`` says whether anybody is dismissed."""

    def __init__(self, scene: Scenario, *, act: bool) -> None:
        self._scene, self._act = scene, act
        self.rule = scene.rule
        self._noise = SimulatedNoise(scene.terms, seed=scene.trial.seed)
        self.scales = self._noise.scales
        self._records = scene.rule.reference_records(scene.reference)
        count = len(scene.terms)
        self._first: FloatArray | None = None
        self._others: dict[int, FloatArray] = {}
        self._last_parameters: FloatArray | None = None
        self._sent: dict[int, FloatArray] = {}
        self._gains: dict[int, float] = {}
        self.evidence = [scene.rule.begin() for _ in range(count)]
        self.remaining = np.ones(count, dtype=bool)
        self.void = False
        self.dismissals: dict[int, int] = {}
        """The round in which each device fell to the bound, from 1."""
        self.shows: dict[int, int] = {}
        """The round in which each device first showed data, from 1."""
        self.weights: list[float] = []
        """The weight of the watched devices in each round's step."""

    def ask(self, number: int, parameters: FloatArray) -> Updates:
        """Ask all who are left, compare what they send, and return what counts."""
        scene = self._scene
        clip = scene.trial.task.clip
        reference = self._records.at(scene.trial.model, parameters, clip=clip)
        self._first = reference.mean if self._first is None else self._first
        owners = np.flatnonzero(self.remaining)
        vectors = self._vectors(owners, number, parameters, reference)
        self._compare(owners, vectors, reference, number + 1)
        counted = self.remaining[owners]
        updates = Updates(owners[counted], vectors[counted])
        self._remember(updates, parameters)
        return updates

    def _vectors(
        self, owners: np.ndarray, number: int, parameters: FloatArray, reference: Reference
    ) -> FloatArray:
        scene = self._scene
        clip = scene.trial.task.clip
        means = scene.trial.model.clipped_means(parameters, scene.federation, clip=clip)
        for i, gradient in scene.gradients.items():
            if self.remaining[i]:
                means[i] = gradient(
                    RoundView(
                        parameters,
                        self._last_parameters,
                        self._sent.get(i),
                        self._gains.get(i, 0.0),
                        reference.mean,
                    )
                )
        return self._noise.release(means[owners], owners, number)

    def _compare(
        self, owners: np.ndarray, vectors: FloatArray, reference: Reference, round: int
    ) -> None:
        rule = self.rule
        assert self._first is not None
        for owner, vector in zip(owners.tolist(), vectors, strict=True):
            before = self.evidence[owner]
            evidence = before.added(
                vector,
                scale=float(self.scales[owner]),
                reference=reference,
                first=self._first,
                others=self._others.get(owner),
            )
            self.evidence[owner] = evidence
            self._gains[owner] = evidence.plain.x - before.plain.x
            self._sent[owner] = vector
            if rule.verdict(evidence) == "dismissed" and not self.void:
                self.dismissals.setdefault(owner, round)
            if evidence.likelihood >= rule.show_bound:
                self.shows.setdefault(owner, round)
        self.void = self.void or 2 * len(self.dismissals) > len(self.evidence)
        if self._act:
            self.remaining[:] = True
            if not self.void:
                self.remaining[list(self.dismissals)] = False

    def _remember(self, updates: Updates, parameters: FloatArray) -> None:
        """Keep what the next round's echoes are compared with, and the watched devices' weight."""
        scales = self.scales[updates.owners]
        sums = aggregate([updates.vectors], scales, "precision", dimension=len(parameters))
        rows = {owner: row for row, owner in enumerate(updates.owners.tolist())}
        self._others = {
            owner: sums.others(rows[owner], updates.vectors[rows[owner]])
            if owner in rows
            else sums.total
            for owner in range(len(self.evidence))
        }
        watched = np.isin(updates.owners, self._scene.watched)
        total = float(sums.weights.sum())
        self.weights.append(float(sums.weights[watched].sum()) / total if total else 0.0)
        self._last_parameters = parameters

    def verdict(self, device: int) -> str:
        """Return what evidence says of a device at the end."""
        if device in self.dismissals:
            return "dismissed"
        return self.rule.verdict(self.evidence[device])
