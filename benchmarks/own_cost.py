"""How fast a best reward is for a cost of one's own: the built-in quadratic cost, written anew.

Prints a page in Markdown. The built-in cost has a closed form and one solve serves every reward;
its twin is searched for as any caller's cost is. Both must find the same reward. The cubic cost,
whose owners enter one by one, has no built-in twin.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import numpy.typing as npt

from fedbourse import Offer, PrivacyCost, Training, best_reward

FloatArray = npt.NDArray[np.float64]
GOAL_SECONDS = 2.0
TRAINING = Training(dimension=1000, step_size=0.1, iterations=500, samples=1000)


class Quadratic:
    def cost(self, values: FloatArray, budgets: FloatArray) -> FloatArray:
        return values * budgets**2

    def marginal(self, values: FloatArray, budgets: FloatArray) -> FloatArray:
        return 2 * values * budgets


class Cubic:
    def cost(self, values: FloatArray, budgets: FloatArray) -> FloatArray:
        return values * (budgets + budgets**3)

    def marginal(self, values: FloatArray, budgets: FloatArray) -> FloatArray:
        return values * (1 + 3 * budgets**2)


def timed(values: FloatArray, cost: str | PrivacyCost, runs: int) -> tuple[float, Offer]:
    """Return the shortest processor time of several runs, and the offer."""
    seconds = float("inf")
    for _ in range(runs):
        start = time.process_time()
        offer = best_reward(values, TRAINING, accuracy_value=20, cost=cost)
        seconds = min(seconds, time.process_time() - start)
    return seconds, offer


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--owners", type=int, nargs="+", default=[50, 200, 1000])
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    print("# How fast the best reward is for a cost of one's own\n")
    row("owners", "own quadratic cost", "ratio to built-in", "off by", "own cubic cost")
    row(*["---:"] * 5)
    for owners in options.owners:
        values = np.random.default_rng(1).uniform(1, 5, owners)
        built_in, exact = timed(values, "quadratic", options.runs)
        quadratic, offer = timed(values, Quadratic(), options.runs)
        cubic, _ = timed(values, Cubic(), options.runs)
        error = abs(offer.reward / exact.reward - 1)
        row(owners, f"{quadratic:.2f} s", f"{quadratic / built_in:.0f}", f"{error:.0e}",
            f"{cubic:.2f} s")  # fmt: skip
        if owners == 200:
            verdict = "met" if max(quadratic, cubic) <= GOAL_SECONDS else "NOT met"
    if 200 in options.owners:
        print(f"\nGoal at 200 owners: at most {GOAL_SECONDS:g} s of processor time: {verdict}.")


if __name__ == "__main__":
    main()
