"""Budgets chosen adaptively, in tasks that run in turn: the divergence stays within the cap.

Each adversary is a deterministic function of the updates so far: it agrees to tasks, asks, and ends
them. An update is one bit by randomised response, whose price is eps^2/2, so that both laws can be
computed to the last path. The filter is the real one.
"""

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbourse.errors import Refused
from fedbourse.privacy import Account, Filter, MemoryStore, RoundRequest, Terms

CAP = 0.6
UPDATES_MAX = 8
TRIES = 6
ORDERS = (1.01, 1.5, 2.0, 4.0, 16.0)
Bits = tuple[int, ...]


class Adversary:
    """Chooses what to do next by all updates so far."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def prices(self, updates: Bits) -> list[float]:
        """Play against a new filter; return the price of each update, and of the next one."""
        self._guard = Filter(MemoryStore(), lifetime_cap=CAP)
        self._tasks: list[tuple[Terms, int]] = []
        prices = []
        for k in range(len(updates) + 1):
            price = self._next(Random(f"{self.seed} {updates[:k]}"))
            if price is None:
                break
            prices.append(price)
        return prices

    def _next(self, choice: Random) -> float | None:
        """Act until an update is charged; return its price, or None where nothing is charged."""
        for _ in range(TRIES):
            act = choice.choice(("agree", "ask", "ask", "close"))
            try:
                if act == "agree":
                    self._agree(choice)
                elif act == "ask" and self._tasks:
                    return self._ask(choice.randrange(len(self._tasks)))
                elif act == "close" and self._tasks:
                    self._guard.close(choice.choice(self._tasks)[0].task)
            except Refused:
                continue
        return None

    def _agree(self, choice: Random) -> None:
        terms = Terms(
            task=f"task {len(self._tasks)}",
            rho=choice.choice((0.05, 0.2, CAP)),
            rounds=choice.choice((1, 2, 3)),
            dimension=1,
            samples=1,
        )
        self._guard.agree(terms)
        self._tasks.append((terms, 0))

    def _ask(self, place: int) -> float:
        terms, number = self._tasks[place]
        round_request = RoundRequest(terms.task, terms.digest, number, "model")
        self._guard.update(round_request, lambda: b"bit", cost=terms.round_rho)
        self._tasks[place] = terms, number + 1
        return terms.round_rho


def paths(adversary: Adversary, updates: Bits = ()) -> Iterator[tuple[Bits, list[float]]]:
    """Yield every sequence of updates that can come, with the prices along it."""
    prices = adversary.prices(updates)
    if len(prices) == len(updates) or len(updates) == UPDATES_MAX:
        yield updates, prices[: len(updates)]
        return
    for bit in (0, 1):
        yield from paths(adversary, (*updates, bit))


def log_likelihood(updates: Bits, prices: list[float], record: int) -> float:
    """Return the logarithm of a path's probability, if the one record is a bit."""
    total = 0.0
    for bit, price in zip(updates, prices, strict=True):
        eps = math.sqrt(2 * price)
        total -= math.log1p(math.exp(-eps if bit == record else eps))
    return total


def divergence(played: Iterable[tuple[Bits, list[float]]], order: float) -> float:
    """Return the Renyi divergence between what is seen of a record that is 1 and one that is 0."""
    mean = 0.0
    for updates, prices in played:
        one, zero = (log_likelihood(updates, prices, record) for record in (1, 0))
        mean += math.exp(order * one + (1 - order) * zero)
    return math.log(mean) / (order - 1)


@settings(max_examples=25)
@given(st.integers(0, 10**9))
def test_no_adaptive_adversary_learns_more_than_the_cap(seed) -> None:
    played = list(paths(Adversary(seed)))
    for order in ORDERS:
        assert divergence(played, order) <= order * CAP * (1 + 1e-9)


def test_adversaries_choose_by_what_they_saw_and_run_several_tasks() -> None:
    plays = [dict(paths(Adversary(seed))) for seed in range(10)]
    assert any(len(set(map(tuple, play.values()))) > 1 for play in plays)
    assert max(len(path) for play in plays for path in play) >= 4


def test_a_filter_that_forgets_closed_tasks_is_found_out(monkeypatch) -> None:
    spent = Account.spent.fget  # type: ignore[attr-defined]
    forgets = property(lambda self: Fraction(0) if self.closed else spent(self))
    monkeypatch.setattr(Account, "spent", forgets)
    assert any(divergence(paths(Adversary(seed)), 1.5) > 1.5 * CAP for seed in range(10))


@pytest.mark.parametrize("order", ORDERS)
def test_a_cap_that_is_spent_on_many_small_updates_is_nearly_reached(order) -> None:
    terms = Terms(task="task", rho=CAP, rounds=100_000, dimension=1, samples=1)
    eps = math.sqrt(2 * terms.round_rho)
    keep = 1 / (1 + math.exp(-eps))
    each = math.log(
        keep**order * (1 - keep) ** (1 - order) + (1 - keep) ** order * keep ** (1 - order)
    )
    assert 0.98 * order * CAP < terms.rounds * each / (order - 1) <= order * CAP
