"""The lab: mechanisms side by side, on the same owners, for the same buyers.

Every mechanism meets every profile of values and every buyer, on the same draws. Each row says what
was bought and paid, what buyer and owners have of it, what an owner gains by lying or under several
names, and which promise or bound was broken, if any.
"""

from fedbourse.lab.buyers import LabBuyer
from fedbourse.lab.profiles import PROFILES, ValueDraw, ValueProfile, profile_of_values
from fedbourse.lab.rows import LabRecord, LabRow
from fedbourse.lab.run import run_lab

__all__ = [
    "PROFILES",
    "LabBuyer",
    "LabRecord",
    "LabRow",
    "ValueDraw",
    "ValueProfile",
    "profile_of_values",
    "run_lab",
]
