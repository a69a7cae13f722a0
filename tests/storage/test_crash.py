"""Killed at any step, the books balance, what was acknowledged stays and nothing else does."""

import signal
import subprocess
import sys

import pytest

from fedbourse.errors import Unreachable
from fedbourse.ledger import Transfer
from fedbourse.storage import SqlStore
from storage.records import ACME, ANN, BOB, TASK, a_reply, check_books, deposit, with_task

# A trade in four transactions, that dies where it is told.
SCRIPT = """
import os, signal, sys
from fedbourse.ledger import Transfer
from fedbourse.storage import SqlStore

url, die_at = sys.argv[1:]

def step(name):
    if name == die_at:
        os.kill(os.getpid(), signal.SIGKILL)
    print(name, flush=True)

store = SqlStore(url)
with store.begin() as unit:
    unit.post([Transfer("deposit", "outside", "buyer:acme", 100)], at_ms=1)
    step("deposited")
step("deposit committed")
with store.begin() as unit:
    unit.post([Transfer("escrow", "buyer:acme", "escrow:t", 100)], at_ms=2)
    with unit.savepoint():
        unit.post([Transfer("pay 0", "escrow:t", "owner:0", 1)], at_ms=2)
        step("inside a savepoint")
step("escrow committed")
with store.begin() as unit:
    unit.post([Transfer(f"pay {n}", "escrow:t", f"owner:{n}", 1) for n in range(1, 50)], at_ms=3)
    step("payments posted")
    unit.post([Transfer("refund", "escrow:t", "buyer:acme", 50)], at_ms=3)
    step("refund posted")
step("all committed")
"""
# What must be there when the process died at a step: (transfers, in escrow).
STEPS = {
    "deposited": (0, 0),
    "deposit committed": (1, 0),
    "inside a savepoint": (1, 0),
    "escrow committed": (3, 99),
    "payments posted": (3, 99),
    "refund posted": (3, 99),
    "all committed": (53, 0),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_process_killed_at_any_step_leaves_whole_books(database_url: str, step: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, database_url, step],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    with SqlStore(database_url) as store:
        held = check_books(store)
        with store.read() as tx:
            transfers = len(tx.entries(limit=999))
        assert (transfers, held.get("escrow:t", 0)) == STEPS[step]
        deposit(store, ACME, 1, id="afterwards")


def test_a_store_survives_the_end_of_its_server(private_postgresql) -> None:
    private_postgresql.execute("CREATE DATABASE market")
    with SqlStore(private_postgresql.url("market"), wait_s=5) as store:
        with_task(store)
        deposit(store, ACME, 10)

        def interrupted(*, immediate: bool) -> None:
            with store.begin() as tx:
                tx.post([Transfer("lost", ACME, ANN, 1)], at_ms=1)
                private_postgresql.stop(immediate=immediate)
                if immediate:  # otherwise it is the end of the transaction that fails
                    tx.put_reply(a_reply(ANN))

        with pytest.raises(Unreachable):
            interrupted(immediate=True)
        for opened in (store.begin, store.read):
            with pytest.raises(Unreachable, match="does not respond"), opened():
                pass
        private_postgresql.start()
        assert check_books(store) == {ACME: 10, "outside": -10}
        deposit(store, BOB, 5)

        # Connections that nobody used meanwhile are found dead, and made anew.
        with store.read(), store.read():
            pass
        private_postgresql.stop()
        private_postgresql.start()
        with store.read() as tx, store.read() as other:
            assert tx.balance(BOB) == other.balance(BOB) == 5

        with pytest.raises(Unreachable):
            interrupted(immediate=False)
        private_postgresql.start()
        assert check_books(store) == {ACME: 10, BOB: 5, "outside": -15}
        with store.read() as tx:
            assert tx.replies_of(TASK, ANN) == []
