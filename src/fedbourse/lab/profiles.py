"""Where owners' values come from: distributions, published settings, or values of one's own."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidInput
from fedbourse.game import Sample, Uniform
from fedbourse.registry import Choice, Registry

if TYPE_CHECKING:
    from fedbourse.game import Distribution
    from fedbourse.game.columns import FloatArray

_PRIOR_DRAWS = 50_000


@dataclass(frozen=True, eq=False)
class ValueDraw:
    """One draw of all owners."""

    values: FloatArray
    cap: float | FloatArray
    """The largest budget of an owner: one number, or one for each."""


@dataclass(frozen=True, eq=False)
class ValueProfile:
    """Where owners' values, and caps, come from."""

    name: str
    prior: Distribution
    """What the buyer assumes of values: the truth, with quantiles."""
    draw: Callable[[int, np.random.Generator], ValueDraw]

    def draws(self, *, owners: int, count: int, seed: int) -> list[ValueDraw]:
        """Return draws, the same for the same seed whatever else is in the lab."""
        rng = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        return [self.draw(owners, rng) for _ in range(count)]


def _of_law(name: str, law: Distribution) -> ValueProfile:
    """Return the profile of a distribution, without caps."""

    def draw(owners: int, rng: np.random.Generator) -> ValueDraw:
        return ValueDraw(np.ravel(law.rvs(size=(1, owners), random_state=rng)), np.inf)

    return ValueProfile(name, law, draw)


def profile_of_values(values: FloatArray, *, name: str = "own") -> ValueProfile:
    """Return the profile of observed values: owners are drawn from them with replacement."""
    return _of_law(name, Sample(values))


def _lognormal() -> ValueProfile:
    from scipy.stats import lognorm

    return _of_law("lognormal", lognorm(s=1.0))


def _pareto() -> ValueProfile:
    from scipy.stats import pareto

    return _of_law("pareto", pareto(b=1.2))


_FAMILIES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "linear": lambda budgets: 2 * budgets,
    "quadratic": lambda budgets: budgets**2,
    "square-root": lambda budgets: 2 * np.sqrt(budgets),
    "exponential": np.expm1,
}
"""What a budget costs an owner in FL-Market's published setting, times its ratio."""


def _family(name: str) -> ValueProfile:
    """Return a family of FL-Market's setting, as its one-number baselines see it.

    An owner has a cap, uniform on [0.1, 5], and a ratio, uniform on [0.5, 1.5]. Its value is what
    a unit costs it if it sells all of its cap. (There budgets are epsilon, here they stand for rho;
    for less than the cap the true cost of a convex family is lower.)
    """
    cost = _FAMILIES[name]

    def draw(owners: int, rng: np.random.Generator) -> ValueDraw:
        caps, ratios = rng.uniform(0.1, 5.0, owners), rng.uniform(0.5, 1.5, owners)
        return ValueDraw(ratios * cost(caps) / caps, caps)

    everybody = draw(_PRIOR_DRAWS, np.random.default_rng(0)).values
    return ValueProfile(f"fl-market-{name}", Sample(everybody), draw)


PROFILES: Registry[Callable[[], ValueProfile]] = Registry(
    "profile",
    Choice(
        "uniform", "uniform", "values uniform on [1, 5], as in the paper's study",
        lambda: _of_law("uniform", Uniform(1.0, 5.0)),
    ),
    Choice("lognormal", "lognormal", "the exponential of a standard normal number", _lognormal),
    Choice("pareto", "Pareto", "Pareto with exponent 1.2, from 1 up", _pareto),
    *(
        Choice[Callable[[], ValueProfile]](
            f"fl-market-{name}",
            f"FL-Market: {name}",
            f"the {name} family of FL-Market's published setting",
            partial(_family, name),
        )
        for name in _FAMILIES
    ),
)  # fmt: skip


def checked_profile(profile: object) -> ValueProfile:
    """Return the profile of a name, or a profile as it is."""
    if isinstance(profile, ValueProfile):
        return profile
    if not isinstance(profile, str):
        raise InvalidInput(
            f"a profile must be a name or a ValueProfile; found {type(profile).__name__}"
        )
    return PROFILES.choose(profile)()
