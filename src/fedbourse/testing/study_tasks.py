"""Tasks that studies train for real, in tests and in soak runs."""

from fedbourse.study.trials import TrialTask

DIGITS = TrialTask("sklearn:digits", owners=40, step_size=2.0)
SYNTHETIC = TrialTask("synthetic:d=30,n=6000", owners=40, samples=150, rounds=30)
