"""What the paper's text claims of its evaluation, and whether its formulas bear it out.

A claim of a trend holds when Kendall's tau between the parameter and the metric, over all draws,
has the claimed sign with p < 0.01, and the means at both ends of the sweep differ that way by more
than three standard errors. Every claim is tested under each of the four accuracy models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedbourse.game import Accuracy
from fedbourse.study.paper import ACCURACY_VALUE, PaperStudy

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray

P_VALUE = 0.01
STANDARD_ERRORS = 3.0


@dataclass(frozen=True)
class PaperClaim:
    """A sentence about one metric along one sweep."""

    text: str
    metric: str
    sweep: str
    shape: Literal["rises", "falls", "gains shrink", "vanishes", "always positive"]


CLAIMS = (
    PaperClaim("more owners, more participants", "participants", "owners", "rises"),
    PaperClaim("more diverse values, fewer participants", "participants", "value_max", "falls"),
    PaperClaim("more owners, a better utility for the server", "server_utility", "owners", "rises"),
    PaperClaim("that gain shrinks as owners are added", "server_utility", "owners", "gains shrink"),
    PaperClaim("more diverse values, a worse one", "server_utility", "value_max", "falls"),
    PaperClaim("more owners, a lower mean utility of users", "user_utility", "owners", "falls"),
    PaperClaim("more owners, a lower spread of it", "user_spread", "owners", "falls"),
    PaperClaim("more diverse values, a higher mean utility", "user_utility", "value_max", "rises"),
    PaperClaim("more diverse values, a higher spread", "user_spread", "value_max", "rises"),
    PaperClaim(
        "server's utility goes to 0 with the reward", "server_utility", "owners", "vanishes"
    ),
    PaperClaim("some reward above 0 is the best one", "reward", "owners", "always positive"),
)


@dataclass(frozen=True)
class Verdict:
    """A claim tested under one model, with the numbers that decide it."""

    claim: PaperClaim
    model: str
    holds: bool
    test: str
    first: float
    """The metric's mean at the sweep's first setting, or what ``test`` says."""
    last: float
    """The mean at the last setting, or what ``test`` says."""
    tau: float | None
    p_value: float | None

    @property
    def numbers(self) -> str:
        """Return the numbers that decided, short."""
        if self.claim.shape == "vanishes":
            return f"goes to {self.first:g}"
        if self.claim.shape == "always positive":
            return f"in {self.last:.5g} of draws" if self.last < 1 else "in all draws"
        ends = (f"{x:.4g}" if abs(x) >= 0.01 else f"{x:.2g}" for x in (self.first, self.last))
        return " to ".join(ends)

    @property
    def word(self) -> str:
        """Return the verdict as the study prints it."""
        return "holds" if self.holds else "does not hold"


def verdicts_on(study: PaperStudy) -> list[Verdict]:
    """Return a verdict for every claim under every model of the study."""
    return [_verdict(study, claim, model) for claim in CLAIMS for model in study.models]


def _verdict(study: PaperStudy, claim: PaperClaim, model: str) -> Verdict:
    outcomes = study.along(claim.sweep, model)
    parameters = np.array([o.sweep.parameter(o.setting) for o in outcomes])
    table = np.array([o.metrics[claim.metric] for o in outcomes])
    if claim.shape == "vanishes":
        limit = ACCURACY_VALUE * Accuracy(model).chance
        return Verdict(claim, model, limit == 0, "limit at reward 0", limit, limit, None, None)
    if claim.shape == "always positive":
        share = (table > 0).mean(axis=1)
        test = "share of draws with a best reward above 0: smallest and mean over settings"
        least, mean = float(share.min()), float(share.mean())
        return Verdict(claim, model, least == 1, test, least, mean, None, None)
    if claim.shape == "gains shrink":
        gains = np.diff(table, axis=0)
        holds, tau, p = _trend(parameters[1:], gains, sign=-1)
        rises, _, _ = _trend(parameters, table, sign=1)
        test = "Kendall's tau of the gains"
        first, last = gains[0].mean(), gains[-1].mean()
        return Verdict(claim, model, holds and rises, test, float(first), float(last), tau, p)
    holds, tau, p = _trend(parameters, table, sign=1 if claim.shape == "rises" else -1)
    first, last = float(table[0].mean()), float(table[-1].mean())
    return Verdict(claim, model, holds, "Kendall's tau", first, last, tau, p)


def _trend(parameters: FloatArray, table: FloatArray, *, sign: int) -> tuple[bool, float, float]:
    """Return whether the rows move the way of ``sign``, with tau and its p-value."""
    from scipy.stats import kendalltau

    draws = table.shape[1]
    kendall = kendalltau(np.repeat(parameters, draws), table.ravel())
    tau, p = float(kendall.statistic), float(kendall.pvalue)
    errors = table.std(axis=1, ddof=1) / math.sqrt(draws)
    way = sign * (table[-1].mean() - table[0].mean())
    clear = way > STANDARD_ERRORS * math.hypot(errors[0], errors[-1])
    return bool(sign * tau > 0 and p < P_VALUE and clear), tau, p
