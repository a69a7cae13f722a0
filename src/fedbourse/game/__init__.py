"""The two-stage game: how owners respond to a reward, and which reward is best for the buyer."""

from fedbourse.game.accuracy import ACCURACY_MODELS, Accuracy, AccuracyModel
from fedbourse.game.best_response import best_response
from fedbourse.game.calibration import Calibration, Observation, calibrate
from fedbourse.game.certificate import regret, tolerance
from fedbourse.game.costs import COSTS, PrivacyCost
from fedbourse.game.distribution import Distribution, Quantiles, Sample, Uniform
from fedbourse.game.equilibrium import equilibrium
from fedbourse.game.mechanisms import (
    MECHANISMS,
    DescendingClock,
    Guarantees,
    LotSale,
    Mechanism,
    MechanismRule,
    OptimalPurchase,
    Outcome,
    Purchase,
    buy_optimally,
    choose_mechanism,
    run_mechanism,
    sell_lots,
)
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
    "MECHANISMS",
    "Accuracy",
    "AccuracyModel",
    "Calibration",
    "Chunk",
    "DescendingClock",
    "DiscoveryResult",
    "Distribution",
    "Equilibrium",
    "ExpectedOffer",
    "Guarantees",
    "LotSale",
    "Mechanism",
    "MechanismRule",
    "Observation",
    "Offer",
    "OptimalPurchase",
    "Outcome",
    "ParticipantSketch",
    "PriceDiscovery",
    "PrivacyCost",
    "Purchase",
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
    "buy_optimally",
    "calibrate",
    "choose_mechanism",
    "discover",
    "equilibrium",
    "estimate_values",
    "regret",
    "run_mechanism",
    "sell_lots",
    "share_at",
    "tolerance",
    "what_if",
]
