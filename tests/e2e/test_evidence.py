"""Evidence between real processes: who sends no data is not paid, whoever is killed meanwhile.

One trade on each database: an honest device, one without data, one that sends the model's steps
back, and an honest one that is killed at every durable step of every round. The market is killed
before, within and after the transaction that closes each round, which is the one that decides on
held pay. Budgets are so large that one round's noise tells junk from data beyond doubt.
"""

import json
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbourse.cli.server_options import pages
from fedbourse.device import Agent
from fedbourse.learning.records import Records
from fedbourse.market.audit import verify_books
from fedbourse.market.evidence import CardReference, Comparison
from fedbourse.tasks.card import TaskCard
from fedbourse.tasks.evidence import reference_file, reference_hash
from fedbourse.testing.e2e.device_process import records
from fedbourse.testing.e2e.forks import Forks
from fedbourse.testing.e2e.invariants import InvariantBroken
from fedbourse.testing.e2e.market_process import DONE
from fedbourse.testing.e2e.network import Network
from fedbourse.testing.e2e.supervised import Supervised

HONEST, NO_DATA, ECHO, KILLED = range(4)
JUNK = {f"owner:o{NO_DATA}", f"owner:o{ECHO}"}
ROUNDS, BLOCK = 4, 2
STRUCK = ("charge", "store", "receipt")
LIVES = {
    NO_DATA: {"deviation": "no_data"},
    ECHO: {"deviation": "echo"},
    KILLED: {"places": ("before", "after"), "only": STRUCK},
}
CHANCE = 1e-6
"""Of what this test leaves to chance."""


def reference() -> bytes:
    """Return the buyer's records: drawn like the owners', and others."""
    drawn = [records(seat) for seat in range(100, 107)]
    features = np.vstack([each for each, _ in drawn])
    labels = np.concatenate([each for _, each in drawn])
    intercept = np.ones(len(features))
    return reference_file(
        Records(np.column_stack([features, intercept]), labels, 2), salt=bytes(32)
    )


@contextmanager
def evidence_trade(
    forks: tuple[Forks, Forks], folder: Path, *, owners: int = 4, **server: Any
) -> Iterator[tuple[Network, str]]:
    """Open a market, its devices and a task with evidence."""
    market = Supervised(forks[0], folder / "market", **server)
    lives = {seat: life for seat, life in LIVES.items() if seat < owners}
    network = Network(market, forks[1], owners=owners, lives=lives, named=True)
    body = reference()
    evidence = {"reference": reference_hash(body), "records": 420, "hold_rounds": BLOCK}
    small_steps = {"step_size": 0.05, "rounds": ROUNDS, "reward": 100.0}
    try:
        yield network, network.publish(reference=body, evidence=evidence, **small_steps)
    finally:
        network.close()
        market.kill()


def check_that_chance_decides_nothing(card: TaskCard, allocations: list[Any]) -> None:
    """One round of noise must take l below the bound: at most N(-v/2, v), v = k^2 |h|^2/sigma^2."""
    comparison, h = Comparison(card), CardReference.of(card, reference()).first
    for each in allocations:
        scale = comparison.scale(each["budget"])
        spread = math.sqrt(h @ h) * comparison.rule.k0 * 0.95 / scale  # halves agree that far
        z = spread / 2 + comparison.rule.dismissal_bound / spread
        assert math.erfc(z / math.sqrt(2)) / 2 < CHANCE, each["owner"]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_who_sends_no_data_is_not_paid_whoever_is_killed_meanwhile(
    kind: str, forks: tuple[Forks, Forks], folder: Path, request: pytest.FixtureRequest
) -> None:
    places = ("before", "middle", "after")
    strikes: dict[str, Any] = {"places": places, "places_again": places}
    with ExitStack() as open_for_now:
        if kind == "postgresql":
            server = request.getfixturevalue("postgresql")
            strikes["database"] = open_for_now.enter_context(server.database())
        network, task = open_for_now.enter_context(
            evidence_trade(forks, folder, only=("scheduler-round",), **strikes)
        )
        network.run(task)
        books = network.check()
        allocations = [row for row in books.tables["allocations"] if row["task"] == task]
        card = json.loads(next(row["card"] for row in books.tables["tasks"]))
        check_that_chance_decides_nothing(TaskCard.of(card), allocations)

        # Everybody was struck where it matters.
        closed = [line for line in network.market.strikes() if line["place"] != DONE]
        assert len({line["step"] for line in closed}) == ROUNDS
        assert len(closed) == network.market.starts - 1 == len(places) * ROUNDS
        struck = [step.partition("/")[0] for _, step, _ in network.strikes()]
        assert {kind: struck.count(kind) for kind in STRUCK} == dict.fromkeys(STRUCK, 2 * ROUNDS)
        assert network.devices[KILLED].starts == 1 + len(struck)

        # Held pay was released once a block, or lost; and everything adds up.
        released = {
            row["id"].partition("/")[2]: row["amount"]
            for row in books.tables["transfers"]
            if "/block-" in row["id"]
        }
        payments = {row["owner"]: row["payment"] for row in allocations}
        honest = payments.keys() - JUNK
        assert released.keys() == {
            f"{owner}/block-{block}" for owner in honest for block in range(ROUNDS // BLOCK)
        }
        for row in allocations:
            state = "dismissed" if row["owner"] in JUNK else "signed"
            earned = 0 if row["owner"] in JUNK else row["payment"]
            assert (row["state"], row["earned"], row["held"]) == (state, earned, 0)
            assert books.balances.get(row["owner"], 0) == earned
            paid = (pay for name, pay in released.items() if name.startswith(row["owner"]))
            assert sum(paid) == earned
        assert books.balances["fund"] == sum(payments[owner] for owner in JUNK)
        assert f"escrow:{task}" not in books.balances

        # All of it can be recomputed, and devices say the same.
        assert not network.verified()
        checks = network.market.patiently(partial(_verified_books, network))
        assert all(check.passed for check in checks), checks
        for device, row in zip(
            network.devices, sorted(allocations, key=lambda row: row["owner"]), strict=True
        ):
            with Agent(device.path / "device", read_only=True) as agent:
                (entry,) = agent.ledger().entries
            due = row["payment"] * row["delivered"] // ROUNDS
            assert entry.deal.owner == row["owner"]
            assert (entry.earned_micro, entry.held_micro) == (row["earned"], 0)
            assert entry.released_micro == books.balances.get(row["owner"], 0)
            assert entry.forfeited_micro == due - row["earned"]


def _verified_books(network: Network) -> list[Any]:
    operator = network.operator
    entries = list(pages(operator, "/v1/transfers", "entries"))
    accounts = list(pages(operator, "/v1/accounts", "accounts"))
    return verify_books(entries=entries, accounts=accounts, meanwhile=[])


def test_a_market_that_releases_pay_in_another_transaction_is_caught(
    forks: tuple[Forks, Forks], folder: Path
) -> None:
    strikes = {"places": ("after",), "places_again": ("after",), "only": ("scheduler-round",)}
    fault = "releases_held_pay_in_a_second_transaction"
    with (
        evidence_trade(forks, folder, owners=2, fault=fault, **strikes) as (network, task),
        pytest.raises(InvariantBroken, match=r"owners were paid .* that is not held"),
    ):
        network.run(task)
