"""The two-stage game: how owners respond to a reward, and which reward is best for the buyer."""

from fedbourse.game.accuracy import ACCURACY_MODELS, Accuracy
from fedbourse.game.best_response import best_response
from fedbourse.game.calibration import Calibration, Observation, calibrate
from fedbourse.game.certificate import regret, tolerance
from fedbourse.game.costs import COSTS, PrivacyCost
from fedbourse.game.distribution import Distribution, Quantiles, Sample, Uniform
from fedbourse.game.equilibrium import equilibrium
from fedbourse.game.outofcore.participant_sketch import ParticipantSketch
from fedbourse.game.outofcore.stream import Chunk, Stream
from fedbourse.game.price_discovery import (
    DiscoveryResult,
    PriceDiscovery,
    best_response_dynamics,
    discover,
    share_at,
)
from fedbourse.game.profile import Equilibrium
from fedbourse.game.reward.best import Offer, best_reward
from fedbourse.game.reward.expected import ExpectedOffer
from fedbourse.game.training import Training
from fedbourse.game.value_estimate import ValueEstimate, estimate_values
from fedbourse.game.what_if import WhatIf, what_if

__all__ = [
    "ACCURACY_MODELS",
    "COSTS",
    "Accuracy",
    "Calibration",
    "Chunk",
    "DiscoveryResult",
    "Distribution",
    "Equilibrium",
    "ExpectedOffer",
    "Observation",
    "Offer",
    "ParticipantSketch",
    "PriceDiscovery",
    "PrivacyCost",
    "Quantiles",
    "Sample",
    "Stream",
    "Training",
    "Uniform",
    "ValueEstimate",
    "WhatIf",
    "best_response",
    "best_response_dynamics",
    "best_reward",
    "calibrate",
    "discover",
    "equilibrium",
    "estimate_values",
    "regret",
    "share_at",
    "tolerance",
    "what_if",
]
