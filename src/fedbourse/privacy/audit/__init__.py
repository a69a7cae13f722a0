"""Is the noise of a device what it claims? A statistical test with a stated error on both sides.

A device runs again and again on one of two neighbouring datasets, which differ in ONE RECORD: the
canary, of a random sign. Updates minus the noiseless updates that the claim implies must look like
independent normal noise of the claimed scale, and the sign must be no easier to guess than claimed.

``claim`` says what is claimed and audited, ``runs`` collects, ``findings`` tests, ``power`` says
how likely each test notices a fault, ``faults`` plants faults, ``verdict`` puts it all together.

Each test works at alpha / (number of tests), so an honest device is accused with probability alpha
at most (the union bound).
"""

from fedbourse.privacy.audit.claim import Claim, Plan, Subject
from fedbourse.privacy.audit.faults import FAULT_DESCRIPTIONS, NOISE_FAULTS
from fedbourse.privacy.audit.findings import Finding, epsilon_lower_bound
from fedbourse.privacy.audit.power import power_of, runs_needed
from fedbourse.privacy.audit.verdict import Audit, audit_noise, audit_residuals

__all__ = [
    "FAULT_DESCRIPTIONS",
    "NOISE_FAULTS",
    "Audit",
    "Claim",
    "Finding",
    "Plan",
    "Subject",
    "audit_noise",
    "audit_residuals",
    "epsilon_lower_bound",
    "power_of",
    "runs_needed",
]
