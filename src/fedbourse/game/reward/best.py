"""The buyer's best reward, knowing how owners will respond: stage one of the game."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from fedbourse.errors import InvalidGame, NoEquilibrium
from fedbourse.game.accuracy import AnyAccuracy, accuracy_named
from fedbourse.game.buyer import Buyer
from fedbourse.game.column_files import loaded, loaded_values
from fedbourse.game.columns import FloatArray, column
from fedbourse.game.costs import Cost, PrivacyCost, cost_named
from fedbourse.game.distribution import Distribution
from fedbourse.game.game import PayFor, pays_for_information
from fedbourse.game.presentation import Chart, Columns, Library, Presentable
from fedbourse.game.profile import Equilibrium, empty_equilibrium
from fedbourse.game.reward.concave import best_rewards
from fedbourse.game.reward.expected import ExpectedOffer, expected_offer
from fedbourse.game.reward.search import Probe, Progress, best_by_search, no_progress
from fedbourse.game.training import Training
from fedbourse.units import number, whole_number


@dataclass(frozen=True, eq=False, repr=False)
class Offer(Presentable):
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

    def to_frame(
        self,
        library: Library | None = None,
        *,
        owners: Literal["participants", "all"] = "participants",
    ) -> Any:
        """Return the equilibrium's frame: what each owner sells and is paid."""
        return self.equilibrium.to_frame(library, owners=owners)

    def _facts(self) -> dict[str, object]:
        return self._short_facts() | {"regret": self.equilibrium.regret, "reason": self.reason}

    def _short_facts(self) -> dict[str, object]:
        facts = {
            "reward": self.reward,
            "utility": self.utility,
            "accuracy": self.accuracy,
            "owners": self.equilibrium.owners,
            "participants": self.equilibrium.count,
            "total_budget": self.equilibrium.total_budget,
            "method": self.method,
        }
        return facts | ({"reason": self.reason} if self.reason else {})

    def _rows(self) -> Columns:
        return self.equilibrium._rows()

    def _first_rows(self) -> str:
        return self.equilibrium._first_rows()

    def _chart(self) -> Chart:
        return self.equilibrium._chart()


@overload
def best_reward(
    values: Distribution,
    training: Training,
    *,
    accuracy_value: float,
    accuracy: AnyAccuracy = ...,
    cost: str | PrivacyCost | Cost = ...,
    entry_cost: object = ...,
    caps: object = ...,
    pay_for: PayFor = ...,
    owners: int,
    draws: int = ...,
    seed: int = ...,
    progress: Progress = ...,
) -> ExpectedOffer: ...
@overload
def best_reward(
    values: object,
    training: Training,
    *,
    accuracy_value: float,
    accuracy: AnyAccuracy = ...,
    cost: str | PrivacyCost | Cost = ...,
    entry_cost: object = ...,
    caps: object = ...,
    pay_for: PayFor = ...,
    progress: Progress = ...,
) -> Offer: ...


def best_reward(
    values: object,
    training: Training,
    *,
    accuracy_value: float,
    accuracy: AnyAccuracy = "precision",
    cost: str | PrivacyCost | Cost = "linear",
    entry_cost: object = 0.0,
    caps: object = None,
    pay_for: PayFor = "budget",
    owners: int | None = None,
    draws: int = 200,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Offer | ExpectedOffer:
    """Return the reward that maximises accuracy_value * accuracy - reward.

    ``values`` are the owners' own; or, for a buyer who does not know them, a distribution
    (``Uniform(1, 5)``, ``Sample(values)``, or any of SciPy's) of which ``owners`` values are drawn.
    ``accuracy`` is the name of a model, an ``Accuracy``, or an ``AccuracyModel`` of your own.
    ``progress`` is told how much of the search, of how much, is done.

    >>> from fedbourse import Training
    >>> training = Training(dimension=1000, step_size=0.1, iterations=500, samples=1000)
    >>> offer = best_reward([1, 2, 3], training, accuracy_value=20)
    >>> round(offer.reward, 6), offer.method
    (0.517723, 'closed form')
    """
    pays_for_information(pay_for)
    values = loaded_values(values)  # once, for many games
    buyer = Buyer(
        training=training,
        accuracy_value=number("accuracy_value", accuracy_value, above=0),
        accuracy=accuracy_named(accuracy),
        cost=cost_named(cost),
        entry_cost=loaded("entry_cost", entry_cost),
        caps=loaded("caps", caps, "cap"),
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
            progress=progress,
        )
    if owners is not None:
        raise InvalidGame(
            "owners= goes with a distribution of values; found a column of values, "
            "which Sample(values) makes a distribution"
        )
    return best_offer(buyer, values, progress)


def best_offer(buyer: Buyer, values: object, progress: Progress = no_progress) -> Offer:
    """Return the best reward for owners with these values."""
    scaled = buyer.scaling is not None
    return (_scaled if scaled else _searched)(buyer, values, progress)


def _scaled(buyer: Buyer, values: object, progress: Progress) -> Offer:
    base = buyer.equilibrium(values, 1.0)
    precisions, multiplicities = buyer.precisions(base)
    if buyer.formula is None:
        best = best_searched_reward(buyer, base, precisions, multiplicities, progress)
        method, reason = "global search", _none_pays(buyer)
    else:
        best, first_unit = best_scaled_reward(buyer, base, precisions, multiplicities)
        closed = buyer.formula.sums_noise and buyer.scaling == 1.0
        method = "closed form" if closed else "Newton's method on a concave utility"
        reason = (
            "no reward pays: from a reward of 0 on, the worth of the model "
            f"({buyer.accuracy_value:g} times accuracy) grows by {first_unit:.4g} per "
            "unit of reward, less than 1"
        )
    if best > 0:
        return _offer(buyer, base.at(best) or buyer.equilibrium(values, best), method)
    return _offer(buyer, empty_equilibrium(base.owners), method, reason)


def best_scaled_reward(
    buyer: Buyer, base: Equilibrium, precisions: FloatArray, multiplicities: FloatArray | None
) -> tuple[float, float]:
    """Return the best reward, and the marginal value of the first unit of it.

    ``base`` is the equilibrium at a reward of 1, ``precisions`` its precisions.
    """
    assert buyer.formula is not None
    (reward,), (first_unit,) = best_rewards(
        precisions[None, :],
        np.array([base.count]),
        multiplicities=multiplicities,
        owners=base.owners,
        accuracy=buyer.formula,
        accuracy_value=buyer.accuracy_value,
        degree=buyer.scaling or 1.0,
    )
    return float(reward), float(first_unit)


def best_searched_reward(
    buyer: Buyer,
    base: Equilibrium,
    precisions: FloatArray,
    multiplicities: FloatArray | None,
    progress: Progress = no_progress,
) -> float:
    """Return the best reward by an accuracy model of which nothing but its numbers is told."""
    probe = buyer.scaled_probe(base, precisions, multiplicities)
    best, _ = best_by_search(probe, buyer.gain, progress)
    return best.reward if best.utility > buyer.nothing(base.owners) else 0.0


def _searched(buyer: Buyer, values: object, progress: Progress) -> Offer:
    best, at_jump = best_by_search(buyer.prober(values), buyer.gain, progress)
    method = "global search, " + ("best at a jump" if at_jump else "best at a smooth peak")
    owners = len(column("values", values))
    if best.utility > buyer.nothing(owners):
        return _near(buyer, values, best, method)
    return _offer(buyer, empty_equilibrium(owners), method, _none_pays(buyer))


def _none_pays(buyer: Buyer) -> str:
    return (
        f"no reward pays: none up to {buyer.gain:g}, the worth of perfect training, is better "
        "than none at all"
    )


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
