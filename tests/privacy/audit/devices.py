"""Devices to audit, honest and not, and what an audit says of them."""

import numpy as np
from scipy import stats

from fedbourse.privacy.audit import FAULTS, Claim, canary, honest

CLAIM = Claim(rho=0.5, clip=1.0, samples=1000, rounds=4, dimension=10)
SMALL = Claim(rho=0.3, clip=2.0, samples=500, rounds=2, dimension=6)
SMALL_RUNS, SMALL_ALPHA = 40, 0.05


def normal(claim, seed=1):
    rng = np.random.default_rng(seed)
    return lambda: rng.normal(0.0, claim.sigma, (claim.rounds, claim.dimension))


def subject(claim, fault=None, seed=1):
    return FAULTS.get(fault, honest)(canary(claim), normal(claim, seed))


def failed(audit):
    return {finding.name for finding in audit.findings if not finding.passed}


def within(count, times, low, high=None):
    """Say whether a count is one that a chance between ``low`` and ``high`` would give."""
    high = low if high is None else high
    return stats.binom.ppf(1e-4, times, low) <= count <= stats.binom.isf(1e-4, times, high)
