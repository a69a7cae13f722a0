"""The studies as functions: each returns a result with ``to_frame``, ``to_dict`` and ``plot``.

They are what the commands ``fedbourse study ...`` run. ``TrialTask`` says what is trained, on which
data, for how many owners. What deviations gain is ``fedbourse.study.deviations``.
"""

from fedbourse.study.accuracy import AccuracyStudy, accuracy_study
from fedbourse.study.aggregation import AggregationRow, AggregationStudy, aggregation_study
from fedbourse.study.claims import Verdict, verdicts_on
from fedbourse.study.evidence.outcomes import EvidenceRow
from fedbourse.study.evidence.scenario import Setting
from fedbourse.study.evidence.sweeps import EvidenceStudy, evidence_study
from fedbourse.study.paper import PaperStudy, paper_study
from fedbourse.study.pilot import PilotStudy, pilot_study
from fedbourse.study.trials import Mean, TrialTask

__all__ = [
    "AccuracyStudy",
    "AggregationRow",
    "AggregationStudy",
    "EvidenceRow",
    "EvidenceStudy",
    "Mean",
    "PaperStudy",
    "PilotStudy",
    "Setting",
    "TrialTask",
    "Verdict",
    "accuracy_study",
    "aggregation_study",
    "evidence_study",
    "paper_study",
    "pilot_study",
    "verdicts_on",
]
