"""The two-stage game: how owners answer a reward, and which reward is best for the buyer."""

from fedbourse.game.accuracy import ACCURACY_MODELS, Accuracy
from fedbourse.game.calibration import Calibration, Observation, calibrate
from fedbourse.game.certificate import regret, tolerance
from fedbourse.game.costs import COSTS, PrivacyCost
from fedbourse.game.discovery import (
    Discovered,
    Discovery,
    best_reply_rounds,
    discover,
    share_at,
)
from fedbourse.game.distribution import Distribution, Sample, Uniform
from fedbourse.game.equilibrium import equilibrium
from fedbourse.game.profile import Equilibrium
from fedbourse.game.reply import best_response
from fedbourse.game.reward import Offer, best_reward
from fedbourse.game.reward_expected import ExpectedOffer
from fedbourse.game.stream import Chunk, Stream
from fedbourse.game.support import Support
from fedbourse.game.training import Training
from fedbourse.game.what_if import WhatIf, what_if

__all__ = [
    "ACCURACY_MODELS",
    "COSTS",
    "Accuracy",
    "Calibration",
    "Chunk",
    "Discovered",
    "Discovery",
    "Distribution",
    "Equilibrium",
    "ExpectedOffer",
    "Observation",
    "Offer",
    "PrivacyCost",
    "Sample",
    "Stream",
    "Support",
    "Training",
    "Uniform",
    "WhatIf",
    "best_reply_rounds",
    "best_response",
    "best_reward",
    "calibrate",
    "discover",
    "equilibrium",
    "regret",
    "share_at",
    "tolerance",
    "what_if",
]
