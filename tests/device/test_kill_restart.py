"""Kill a device wherever it writes or sends while a price is discovered again: it sells once."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from fractions import Fraction
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from device import restart_process
from device.restart_process import Followed
from fedbourse.device import Agent
from fedbourse.tasks.card import TaskCard
from fedbourse.testing.device.malicious_market import CARD, MaliciousMarket, malicious_market
from fedbourse.testing.device.owners import joined

ONE_ROUND = TaskCard.of({**CARD.document, "rounds": 1})
CAP = 0.25
"""Enough for one budget, and not for two."""
PAY = 3_000_000

Lived = Callable[[Followed], tuple[int, int]]


@pytest.fixture(scope="module")
def lived() -> Iterator[Lived]:
    """Let a device live a life, in a process of its own; return its exit code and its points."""
    server = subprocess.Popen(
        [sys.executable, restart_process.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # a process with threads should not fork
    )
    assert server.stdin is not None
    assert server.stdout is not None

    def ask(life: Followed) -> tuple[int, int]:
        server.stdin.write(json.dumps(asdict(life)) + "\n")
        server.stdin.flush()
        code, points = json.loads(server.stdout.readline())
        return code, points

    with server:
        yield ask
        server.stdin.close()


@pytest.fixture
def folder(tmp_path) -> Iterator[Path]:
    """Return a folder, in memory if possible: SIGKILL takes no more from it than from a disk."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as made:
        yield Path(made)


def settles_anew(market: MaliciousMarket) -> None:
    """Let the market settle once more at the same tick, after the first signature."""

    def decided(update: Any) -> Any:
        if market.leaf == "1" * 64:
            market.state, market.signed, market.leaf = "settled", False, "2" * 64
            market.events += 1
        return update

    market.cheats["decide"] = decided


def discovers_again(market: MaliciousMarket) -> None:
    """Let the market announce another total after the first signature."""
    market.restarts = 1


def broken_laws(folder: Path) -> list[str]:
    """Return what went wrong, a sentence each."""
    with Agent(folder, read_only=True) as agent:
        accounts, ledger = agent.guard.accounts(), agent.ledger()
    broken = []
    if sum(not account.closed for account in accounts) > 1:
        broken.append("two budgets are reserved")
    if sum(account.charged > 0 for account in accounts) > 1:
        broken.append("two budgets were charged")
    if ledger.spent + ledger.reserved > Fraction(CAP):
        broken.append("more is spent and reserved than the cap")
    if ledger.elsewhere:
        broken.append("an account belongs to no deal")
    (entry,) = ledger.entries
    if entry.deal.state == "signed" and not any(
        account.terms.task == entry.deal.account for account in accounts
    ):
        broken.append("terms are signed without a reserved budget")
    return broken


@pytest.mark.parametrize("again", [discovers_again, settles_anew])
def test_killed_at_any_point_of_a_restart_a_device_sells_one_budget(again, lived, folder) -> None:
    killed = 0
    for k in count():
        with malicious_market(card=ONE_ROUND) as market:
            market.totals, market.payment = [1.0, 0.8], PAY
            again(market)
            device = joined(folder / str(k), market, lifetime_cap=CAP)
            code, points = lived(Followed(str(device), killed_at=k))
            assert not broken_laws(device), k
            if code:
                assert code == -signal.SIGKILL, k
                assert lived(Followed(str(device)))[0] == 0, k
                killed += 1
            assert not broken_laws(device), k
            with Agent(device, read_only=True) as agent:
                ledger = agent.ledger()
                (entry,) = ledger.entries
                accounts = agent.guard.accounts()
            assert (entry.deal.state, entry.deal.outcome) == ("ended", "completed"), k
            assert [account.charged for account in accounts] == [0, 1], k
            assert (entry.earned_micro, ledger.reserved) == (PAY, 0), k
            assert len(market.left[0]) == 1, k
            if not code:
                break
    assert killed == points >= 20
