"""Privacy in zCDP: what noise costs, noise that costs it, and a filter that never lets out more."""

from fedbourse.privacy.filter import Account, Filter, RoundRequest, SpendStorage
from fedbourse.privacy.memory_store import MemoryStore
from fedbourse.privacy.noise import ExactNoise, Noise, NoNoise, SimulatedNoise
from fedbourse.privacy.terms import Terms
from fedbourse.privacy.zcdp import (
    DELTA,
    compose,
    epsilon,
    gaussian_epsilon,
    noise_scale,
    rho_for,
    whole_owner,
)

__all__ = [
    "DELTA",
    "Account",
    "ExactNoise",
    "Filter",
    "MemoryStore",
    "NoNoise",
    "Noise",
    "RoundRequest",
    "SimulatedNoise",
    "SpendStorage",
    "Terms",
    "compose",
    "epsilon",
    "gaussian_epsilon",
    "noise_scale",
    "rho_for",
    "whole_owner",
]
