"""An owner made for audits: one of its records, the canary, must show exactly as far as claimed.

What is audited is what devices do: the model's clipped means, then the noise. The canary's gradient
is huge before clipping and its label decides the sign, so at every model the claim says to the last
digit what it adds to the mean: +-L/m along its features. All other gradients are short of the clip,
so that a wrong clip shows in the canary alone.

The model is least squares: there a label decides the sign of a gradient, and its size, whatever the
clip, the dimension and the model's parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from fedbourse.errors import InvalidInput
from fedbourse.game.columns import FloatArray
from fedbourse.learning.models import LeastSquares
from fedbourse.learning.partition import Federation
from fedbourse.learning.records import Records
from fedbourse.privacy.audit import FAULT_DESCRIPTIONS, NOISE_FAULTS, Claim, Subject
from fedbourse.privacy.noise import CLIP_MAX, CLIP_MIN, ExactNoise, Noise, SimulatedNoise
from fedbourse.privacy.terms import Terms
from fedbourse.units import number, whole_number

AddNoise = Callable[[FloatArray], FloatArray]

Mechanism = Literal["exact", "simulated"]
MECHANISMS: tuple[Mechanism, ...] = ("exact", "simulated")
_NUMBERS_MAX = 1e8  # of the owner's records, and of all models: 800 MB each
_SHORT, _HUGE = 1 / 16, 1e6  # parameters and labels, and the canary's label, in clips
_ONLY = np.zeros(1, dtype=np.int64)  # the one owner there is


@dataclass(frozen=True, eq=False)
class CanaryOwner:
    """An owner with a canary, its first record, and the models that it is asked about."""

    claim: Claim
    features: FloatArray
    labels: FloatArray
    models: FloatArray
    """A row for each round."""

    @classmethod
    def draw(cls, claim: Claim, *, seed: int) -> CanaryOwner:
        """Draw records and models; features are at most sqrt(2) long."""
        m, d = claim.samples, claim.dimension
        number("clip", claim.clip, at_least=CLIP_MIN, at_most=CLIP_MAX)
        for name, count in (("samples", m), ("rounds", claim.rounds)):
            number(f"{name} x dimension", float(count) * d, at_most=_NUMBERS_MAX)
        # A stream of its own: the audit draws the signs from the seed itself.
        rng = np.random.default_rng([whole_number("seed", seed, at_least=0), 1])
        features = np.ones((m, d))
        features[:, :-1] = rng.uniform(-1.0, 1.0, (m, d - 1)) / np.sqrt(max(d - 1, 1))
        labels = rng.uniform(-1.0, 1.0, m) * claim.clip * _SHORT
        models = rng.uniform(-1.0, 1.0, (claim.rounds, d)) / np.sqrt(d) * claim.clip * _SHORT
        return cls(claim, features, labels, models)

    def records(self, sign: int) -> Records:
        """Return the records with the canary of this sign: a neighbour of those of the other."""
        labels = self.labels.copy()
        labels[0] = -sign * _HUGE * self.claim.clip
        return Records(self.features, labels, 0)

    def means(self, sign: int, *, clip: float) -> FloatArray:
        """Return the clipped mean of each round, as training computes it."""
        model, federation = LeastSquares(self.claim.dimension), self._federations[sign]
        rounds = [model.clipped_means(w, federation, clip=clip)[0] for w in self.models]
        return np.stack(rounds)

    def expected(self, sign: int, /) -> FloatArray:
        """Return what the claim implies: every gradient written down, the canary's from the claim.

        Nothing here is shared with the models.
        """
        others, labels = self.features[1:], self.labels[1:]
        # Shorter than the clip: (1 + sqrt(2)) sqrt(2) / 16 of it at most.
        sums = [((others @ w - labels)[:, None] * others).sum(axis=0) for w in self.models]
        canary = self.claim.clip * self.features[0] / np.linalg.norm(self.features[0])
        expected: FloatArray = (np.stack(sums) + sign * canary) / self.claim.samples
        return expected

    @cached_property
    def _federations(self) -> dict[int, Federation]:
        cut = np.array([0, self.claim.samples])
        return {sign: Federation(self.records(sign), cut) for sign in (1, -1)}


@dataclass(frozen=True)
class CanarySubject:
    """What a device does: a clipped mean a round, with noise."""

    owner: CanaryOwner
    clip: float
    add_noise: AddNoise
    """Return the updates of one run from its means."""

    def expected(self, sign: int, /) -> FloatArray:
        """Return the noiseless updates that the claim implies."""
        return self.owner.expected(sign)

    def updates(self, sign: int, /) -> FloatArray:
        """Return the noisy updates of one fresh run."""
        return self.add_noise(self.owner.means(sign, clip=self.clip))


def canary_subject(
    claim: Claim, *, mechanism: Mechanism = "exact", fault: str | None = None, seed: int = 0
) -> Subject:
    """Return an owner's device to audit, with a fault planted in its noise or its query if asked.

    ``seed`` draws the records, the models and simulated noise; exact noise has none.
    """
    if mechanism not in MECHANISMS:
        raise InvalidInput(
            f"mechanism must be one of {', '.join(MECHANISMS)}; found {mechanism!r:.60}"
        )
    if fault is not None and fault not in FAULT_DESCRIPTIONS:
        faults = ", ".join(FAULT_DESCRIPTIONS)
        raise InvalidInput(f"fault must be one of {faults}; found {fault!r:.60}")
    if fault == "reused-noise" and claim.rounds < 2:
        raise InvalidInput(f"reused-noise needs at least 2 rounds; found {claim.rounds}")
    owner = CanaryOwner.draw(claim, seed=seed)
    add_noise, clip = _noise(claim, mechanism, seed), claim.clip
    if fault in NOISE_FAULTS:
        nothing = np.zeros((claim.rounds, claim.dimension))
        honest = add_noise
        draw = NOISE_FAULTS[fault](lambda: honest(nothing))
        return CanarySubject(owner, clip, lambda means: means + draw())
    if fault == "double-sensitivity":
        clip = 2 * clip  # the query's; the noise still is that of the terms
    return CanarySubject(owner, clip, add_noise)


def _noise(claim: Claim, mechanism: Mechanism, seed: int) -> AddNoise:
    terms = Terms(
        task="audit",
        rho=claim.rho,
        rounds=claim.rounds,
        dimension=claim.dimension,
        samples=claim.samples,
        clip=claim.clip,
    )
    if mechanism == "exact":
        exact = ExactNoise([terms])
        return lambda means: _released(exact, means)
    # Simulated noise is the same again for the same seed: each run needs another one.
    seeds = np.random.default_rng([seed, 2])
    return lambda means: _released(SimulatedNoise([terms], seed=int(seeds.integers(2**53))), means)


def _released(noise: Noise, means: FloatArray) -> FloatArray:
    updates = [noise.release(mean[None], _ONLY, number)[0] for number, mean in enumerate(means)]
    return np.stack(updates)
