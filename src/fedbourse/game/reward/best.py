"""The buyer's best reward, knowing how owners will respond: stage one of the game."""

from __future__ import annotations

from dataclasses import dataclass
from typing import overload

import numpy as np

from fedbourse.errors import InvalidGame, NoEquilibrium
from fedbourse.game.accuracy import Accuracy, accuracy_named
from fedbourse.game.buyer import Buyer
from fedbourse.game.columns import FloatArray, column
from fedbourse.game.costs import Cost, PrivacyCost, cost_named
from fedbourse.game.distribution import Distribution
from fedbourse.game.game import PayFor, pays_for_information
from fedbourse.game.profile import Equilibrium, empty_equilibrium
from fedbourse.game.reward.concave import best_rewards
from fedbourse.game.reward.expected import ExpectedOffer, expected_offer
from fedbourse.game.reward.search import Probe, best_by_search
from fedbourse.game.training import Training
from fedbourse.units import number, whole_number


@dataclass(frozen=True, eq=False)
class Offer:
    """The reward that is best for the buyer, and what it buys."""

    reward: float
    utility: float
    """The buyer's: accuracy value * accuracy - reward."""
    accuracy: float
    """What the accuracy model predicts."""
    equilibrium: Equilibrium
    """How the owners respond to that reward."""
    method: str
    reason: str
    """Why no reward pays, where the best reward is 0; otherwise empty."""


@overload
def best_reward(
    values: Distribution,
    training: Training,
    *,
    accuracy_value: float,
    accuracy: str | Accuracy = ...,
    cost: str | PrivacyCost | Cost = ...,
    entry_cost: object = ...,
    caps: object = ...,
    pay_for: PayFor = ...,
    owners: int,
    draws: int = ...,
    seed: int = ...,
) -> ExpectedOffer: ...
@overload
def best_reward(
    values: object,
    training: Training,
    *,
    accuracy_value: float,
    accuracy: str | Accuracy = ...,
    cost: str | PrivacyCost | Cost = ...,
    entry_cost: object = ...,
    caps: object = ...,
    pay_for: PayFor = ...,
) -> Offer: ...


def best_reward(
    values: object,
    training: Training,
    *,
    accuracy_value: float,
    accuracy: str | Accuracy = "paper",
    cost: str | PrivacyCost | Cost = "linear",
    entry_cost: object = 0.0,
    caps: object = None,
    pay_for: PayFor = "budget",
    owners: int | None = None,
    draws: int = 200,
    seed: int = 0,
) -> Offer | ExpectedOffer:
    """Return the reward that maximises accuracy_value * accuracy - reward.

    ``values`` are the owners' own; or, for a buyer who does not know them, a distribution
    (``Uniform(1, 5)``, ``Sample(values)``, or any of SciPy's) of which ``owners`` values are drawn.

    >>> from fedbourse import Training
    >>> training = Training(dimension=1000, step_size=0.1, iterations=500, samples=1000)
    >>> offer = best_reward([1, 2, 3], training, accuracy_value=20, accuracy="precision")
    >>> round(offer.reward, 6), offer.method
    (0.517723, 'closed form')
    """
    pays_for_information(pay_for)
    buyer = Buyer(
        training=training,
        accuracy_value=number("accuracy_value", accuracy_value, above=0),
        accuracy=accuracy_named(accuracy),
        cost=cost_named(cost),
        entry_cost=entry_cost,
        caps=caps,
        pay_for=pay_for,
    )
    if isinstance(values, Distribution):
        if owners is None:
            raise InvalidGame("a distribution of values needs owners=, how many values to draw")
        return expected_offer(
            buyer,
            values,
            owners=whole_number("owners", owners, at_least=2, error=InvalidGame),
            draws=whole_number("draws", draws, at_least=1),
            seed=whole_number("seed", seed, at_least=0),
        )
    if owners is not None:
        raise InvalidGame(
            "owners= goes with a distribution of values; found a column of values, "
            "which Sample(values) makes a distribution"
        )
    return _scaled(buyer, values) if buyer.scaling is not None else _searched(buyer, values)


def _scaled(buyer: Buyer, values: object) -> Offer:
    base = buyer.equilibrium(values, 1.0)
    precisions, multiplicities = buyer.precisions(base)
    best, first_unit = best_scaled_reward(buyer, base, precisions, multiplicities)
    closed = buyer.accuracy.sums_noise and buyer.scaling == 1.0
    method = "closed form" if closed else "Newton's method on a concave utility"
    if best > 0:
        return _offer(buyer, base.at(best) or buyer.equilibrium(values, best), method)
    reason = (
        "no reward pays: from a reward of 0 on, the worth of the model "
        f"({buyer.accuracy_value:g} times accuracy) grows by {first_unit:.4g} per "
        "unit of reward, less than 1"
    )
    return _offer(buyer, empty_equilibrium(base.owners), method, reason)


def best_scaled_reward(
    buyer: Buyer, base: Equilibrium, precisions: FloatArray, multiplicities: FloatArray | None
) -> tuple[float, float]:
    """Return the best reward, and the marginal value of the first unit of it.

    ``base`` is the equilibrium at a reward of 1, ``precisions`` its precisions.
    """
    (reward,), (first_unit,) = best_rewards(
        precisions[None, :],
        np.array([base.count]),
        multiplicities=multiplicities,
        owners=base.owners,
        accuracy=buyer.accuracy,
        accuracy_value=buyer.accuracy_value,
        degree=buyer.scaling or 1.0,
    )
    return float(reward), float(first_unit)


def _searched(buyer: Buyer, values: object) -> Offer:
    best, at_jump = best_by_search(buyer.prober(values), buyer.gain)
    method = "global search, " + ("best at a jump" if at_jump else "best at a smooth peak")
    if best.utility > buyer.accuracy_value * buyer.accuracy.chance:
        return _near(buyer, values, best, method)
    reason = (
        f"no reward pays: none up to {buyer.gain:g}, the worth of perfect training, is better "
        "than none at all"
    )
    return _offer(buyer, empty_equilibrium(len(column("values", values))), method, reason)


def _near(buyer: Buyer, values: object, best: Probe, method: str) -> Offer:
    """Return the offer at the best reward, or very close to it.

    The search looks at the game of those who may take part. Within rounding of a jump, the game of
    everybody may fall on its other side; then step away from it until both agree.
    """
    offers = []
    for step in (0.0, *(s * 10.0**e for e in range(-14, -6) for s in (-1.0, 1.0))):
        try:
            profile = buyer.equilibrium(values, best.reward * (1.0 + step))
        except NoEquilibrium:
            continue
        offers.append(_offer(buyer, profile, method))
        if offers[-1].utility >= best.utility - (2 * abs(step) + 1e-12) * buyer.accuracy_value:
            break
    return max(offers, key=lambda offer: offer.utility)


def _offer(buyer: Buyer, profile: Equilibrium, method: str, reason: str = "") -> Offer:
    precisions, multiplicities = buyer.precisions(profile)
    accuracy = buyer.accuracy.of(precisions, profile.owners, multiplicities)
    utility = buyer.utility(precisions, multiplicities, profile.owners, profile.reward)
    return Offer(profile.reward, utility, accuracy, profile, method, reason)
