"""A buyer keeps its records: a process of its own sends gradients, is killed, and goes on."""

import json
import os
import signal
import subprocess
from contextlib import chdir, contextmanager

import pytest

from cli.evidence_records import NAMES, VALUES, gradient_of, quicken, steps, write_csv
from cli.markets import (
    WAIT_S,
    Shell,
    command,
    new_token,
    owners,
    paid_in,
    replied,
    running_market,
    until,
)
from fedbourse.cli import main

ROUNDS = 4


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    with running_market(tmp_path_factory.mktemp("gradients") / "market") as running:
        yield running


@pytest.fixture
def shell(capsys, market):
    return Shell(capsys, market.url)


@contextmanager
def sender(market, folder, token):
    """Start the buyer's process, and end it with the block."""
    sending = command(*steps(2)[3], "--token-file", token, "--json")
    with subprocess.Popen(
        [*sending, "--server", market.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(timeout=WAIT_S)


def draft(shell, folder, token, *, block):
    """Store a draft by the how-to's steps."""
    write_csv(folder / "mine.csv", 4000, seed=1)
    written, created, *_ = steps(block)
    with chdir(folder):
        assert main(written) == 0
        card = quicken(folder / "card.json", rounds=ROUNDS)
        return shell.json(*created, token=token), card


def test_a_buyer_that_was_killed_goes_on_and_reveals_in_the_end(shell, market, tmp_path) -> None:
    acme = new_token(shell, market, "buyer:acme", tmp_path)
    kay = new_token(shell, market, "auditor:kay", tmp_path)
    paid_in(shell, market, acme, party="buyer:acme", credits="20", reference="all")
    task, card = draft(shell, tmp_path, acme, block=2)
    name, file = task["task"], tmp_path / "card.reference"
    shell.json(*steps(2)[2], token=acme)
    code, sentence = shell.refused("task", "reference", name, file, token=acme)
    assert (code, "until the task has ended" in sentence) == (11, True)

    def shown():
        return shell.json("task", "show", name)

    with owners(shell, market, *NAMES) as people:
        for owner in people:
            owner.like(task)
        shell.json("task", "announce", name, token=acme)
        replied(shell, name, dict(zip(people, VALUES, strict=True)))
        for owner in people:
            owner.decide(task, accept=True)
        until(lambda: shown()["reference_ends_ms"] is not None)

        def play(number):
            for place, owner in enumerate(people):
                if owner.participation(task)["allocation"]["state"] == "signed":
                    honest = None if place == 0 else gradient_of(card, seed=10 + place)
                    owner.send_update(task, number, card=card, gradient=honest)

        with sender(market, tmp_path, acme) as first:
            play(0)
            until(lambda: shown()["round"] == 1 and shown()["reference_ends_ms"] is None)
            os.kill(first.pid, signal.SIGKILL)
            first.wait(timeout=WAIT_S)
        play(1)
        until(lambda: shown()["reference_ends_ms"] is not None)
        assert shown()["round"] == 2  # and waits
        with sender(market, tmp_path, acme) as second:
            play(2)
            play(3)
            out, err = second.communicate(timeout=WAIT_S)
    assert second.returncode == 0, err
    assert json.loads(out) == {
        "task": name,
        "state": "completed",
        "round": ROUNDS,
        "rounds": ROUNDS,
        "sent": 2,
        "revealed": True,
    }
    assert [json.loads(line)["round"] for line in err.splitlines()] == [2, 3]
    code, out, _ = shell("verify", name, "--json", token=kay)
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert (code, checks["evidence"]["passed"]) == (0, True), checks["evidence"]
    found = shell.json("task", "evidence", name, token=acme)
    assert (found["devices"], found["revealed"]) == (6, True)
    code, out, _ = shell("task", "watch", name, token=acme)
    assert "its reference gradient has the hash" in out
    # Once more sends nothing, and says the same.
    again = shell.json("task", "send-gradients", name, file, token=acme)
    assert (again["sent"], again["revealed"]) == (0, True)


def test_a_card_whose_records_the_market_has_needs_no_sender(shell, market, tmp_path) -> None:
    bell = new_token(shell, market, "buyer:bell", tmp_path)
    task, _ = draft(shell, tmp_path, bell, block=0)
    code, sentence = shell.refused(
        "task", "send-gradients", task["task"], tmp_path / "card.reference", token=bell
    )
    assert code == 2
    assert "fedbourse task reference uploads" in sentence
