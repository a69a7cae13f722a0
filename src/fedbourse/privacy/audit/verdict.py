"""An audit from end to end: observe runs, test them, and report."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedbourse.errors import InvalidInput
from fedbourse.privacy.audit.claim import Claim, Plan, Subject
from fedbourse.privacy.audit.faults import FAULT_DESCRIPTIONS
from fedbourse.privacy.audit.findings import (
    CANARY_TESTS,
    NOISE_TESTS,
    Finding,
    epsilon_lower_bound,
    run_tests,
)
from fedbourse.privacy.audit.power import RUNS_MIN, level_of, runs_needed
from fedbourse.privacy.audit.runs import Residuals, shaped, watch
from fedbourse.privacy.noise import FloatArray
from fedbourse.units import whole_number


@dataclass(frozen=True)
class Audit:
    """All findings, and the verdict."""

    claim: Claim
    findings: tuple[Finding, ...]
    runs: int
    alpha: float
    """An honest device is accused with this probability at most."""
    epsilon_lower_bound: float | None
    """Above the device's true epsilon with probability alpha / (number of tests) at most.

    None where there was no canary to guess.
    """

    @property
    def passed(self) -> bool:
        """Say whether every test passed."""
        return all(finding.passed for finding in self.findings)

    @property
    def epsilon_claimed(self) -> float:
        """Return the epsilon that the claim implies, about one record."""
        return self.claim.epsilon

    @property
    def power(self) -> dict[str, float]:
        """Return how likely the audit notices each fault, at least: the best test's power."""
        best: dict[str, float] = {}
        for finding in self.findings:
            for fault, power in finding.power.items():
                best[fault] = max(power, best.get(fault, 0.0))
        return {fault: best[fault] for fault in FAULT_DESCRIPTIONS if fault in best}

    def runs_needed(self, fault: str, *, power: float = 0.99) -> int | None:
        """Return the runs at which the best test has this power; None if no number gives it."""
        needed = []
        for finding in self.findings:
            if fault not in finding.power:
                continue
            try:
                needed.append(
                    runs_needed(
                        self.claim,
                        test=finding.name,
                        fault=fault,
                        power=power,
                        alpha=self.alpha,
                        tests=len(self.findings),
                    )
                )
            except InvalidInput:  # this test never gets there; another may
                continue
        return min(needed, default=None)

    def sentences(self) -> list[str]:
        """Return the verdict in sentences."""
        failed = [finding for finding in self.findings if not finding.passed]
        verdict = "the noise is NOT what it claims" if failed else "no sign of wrong noise"
        lines = [
            f"{self.runs} runs, {len(self.findings)} tests: {verdict}; "
            f"an honest device is accused with probability {self.alpha:g} at most."
        ]
        for f in failed:
            lines.append(f"{f.name}: {f.catches} (p = {f.p_value:.2g}, limit {f.threshold:.2g}).")
        for fault, power in self.power.items():
            rounded = math.floor(power * 1e4) / 1e4  # down, never up to certainty
            lines.append(f"It notices {FAULT_DESCRIPTIONS[fault]} with probability {rounded:g}.")
        if self.epsilon_lower_bound is not None:
            lines.append(
                f"About one record, an epsilon of at least {self.epsilon_lower_bound:.3g} was "
                f"shown; {self.epsilon_claimed:.3g} is claimed (delta = {self.claim.delta:g})."
            )
        return lines


def audit_noise(
    subject: Subject,
    claim: Claim,
    *,
    runs: int = 400,
    alpha: float = 1e-4,
    seed: int | np.random.Generator = 0,
    progress: Callable[[int], None] | None = None,
) -> Audit:
    """Run the subject ``runs`` times and test its noise against the claim.

    ``seed`` draws the signs and what the reuse tests compare, never noise. ``progress`` is told
    after each run how many are done.
    """
    tests = len(NOISE_TESTS) + len(CANARY_TESTS)
    plan = Plan(claim, whole_number("runs", runs, at_least=RUNS_MIN), level_of(alpha, tests=tests))
    residuals, guesses = watch(subject, plan, _generator(seed), progress)
    findings = (
        *run_tests(NOISE_TESTS, plan, residuals),
        *run_tests(CANARY_TESTS, plan, guesses),
    )
    bound = epsilon_lower_bound(guesses.right, plan.runs, delta=claim.delta, alpha=plan.level)
    return Audit(claim, findings, plan.runs, float(alpha), bound)


def audit_residuals(
    residuals: FloatArray,
    claim: Claim,
    *,
    alpha: float = 1e-4,
    seed: int | np.random.Generator = 0,
) -> Audit:
    """Test recorded noise, of shape (runs, rounds, dimension), against the claim.

    Residuals are updates minus the noiseless updates. Without a canary nothing is said about how
    far one record moves an update.
    """
    runs = len(residuals) if np.ndim(residuals) == 3 else 0
    if not runs:
        raise InvalidInput(
            f"residuals must have the shape (runs, rounds, dimension); found {np.shape(residuals)}"
        )
    plan = Plan(claim, runs, level_of(alpha, tests=len(NOISE_TESTS)))
    sums = Residuals(plan, _generator(seed))
    for run in residuals:
        sums.add(shaped(run, claim), claim.sigma)
    return Audit(claim, tuple(run_tests(NOISE_TESTS, plan, sums)), runs, float(alpha), None)


def _generator(seed: int | np.random.Generator) -> np.random.Generator:
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(whole_number("seed", seed, at_least=0))
