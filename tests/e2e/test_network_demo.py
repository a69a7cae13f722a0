"""A market, five devices and a buyer as processes of their own, two of the devices killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedbourse.protocol.messages import earned

WAIT_S = 240


def command(out: Path) -> list[str]:
    return [sys.executable, "-m", "fedbourse", "demo-network", "--out", str(out), "--json"]


def processes_of(folder: Path) -> list[int]:
    """Return the processes that have this folder among their arguments."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit() and int(each.name) != os.getpid():
            try:
                said = (each / "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(folder) in said:
                found.append(int(each.name))
    return found


def test_the_whole_trade(tmp_path) -> None:
    """One test: a demonstration takes a minute, and several processes would each have their own."""
    out = tmp_path / "out"
    done = subprocess.run(command(out), capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    demo = json.loads(done.stdout) | {"out": out}
    the_task_is_completed_and_every_micro_credit_is_somewhere(demo)
    who_came_back_is_paid_in_full_also_after_a_kill(demo)
    who_stayed_away_keeps_what_it_earned_and_the_rest_goes_to_the_fund(demo)
    everybody_recomputes_the_same(demo)
    the_model_is_worth_having_and_nothing_is_left_running(demo)


def the_task_is_completed_and_every_micro_credit_is_somewhere(demo) -> None:
    money = demo["money_micro"]
    assert demo["state"] == "completed"
    assert money["held"] == money["earned"] + money["fund"] + money["refunded"] + money["escrow"]
    assert money["escrow"] == money["refunded"] == money["released"] == 0
    assert money["earned"] == sum(device["earned_micro"] for device in demo["devices"])
    assert sum(device["payment_micro"] for device in demo["devices"]) == money["held"]


def who_came_back_is_paid_in_full_also_after_a_kill(demo) -> None:
    returned = [device for device in demo["devices"] if device["returned"]]
    assert len(returned) == 4
    assert [device["device"] for device in returned if device["killed"]] == ["cat"]
    for device in returned:
        assert device["state"] == "ended"
        assert device["delivered"] == device["own_delivered"] == demo["rounds"]
        assert device["earned_micro"] == device["own_earned_micro"] == device["payment_micro"]
        assert device["spent"] == pytest.approx(device["budget"], rel=1e-9)


def who_stayed_away_keeps_what_it_earned_and_the_rest_goes_to_the_fund(demo) -> None:
    (gone,) = (device for device in demo["devices"] if not device["returned"])
    rounds = demo["rounds"]
    assert 0 < gone["delivered"] < rounds
    due = earned(gone["payment_micro"], delivered=gone["delivered"], rounds=rounds)
    assert gone["earned_micro"] == due
    assert demo["money_micro"]["fund"] == gone["payment_micro"] - due
    # It may have been killed between an update and its receipt, never with more spent than that.
    assert gone["own_delivered"] - gone["delivered"] in (0, 1)
    assert gone["spent"] <= gone["budget"] * (gone["delivered"] + 1) / rounds * (1 + 1e-9)


def everybody_recomputes_the_same(demo) -> None:
    verified = demo["verified"]
    assert verified["task"] >= 17
    assert verified["books"] >= 3
    assert set(verified["devices"]) == {"ann", "bob", "cat", "eve"}
    assert min(verified["devices"].values()) >= 15


def the_model_is_worth_having_and_nothing_is_left_running(demo) -> None:
    assert demo["accuracy"] > demo["chance"] + 0.05
    assert not processes_of(demo["out"])


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path) -> None:
    (tmp_path / "participation").write_text("")
    done = subprocess.run(
        command(tmp_path), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 5
    assert "must be a new or an empty folder" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["participation"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interruption_ends_everything_that_was_started(tmp_path, number) -> None:
    out = tmp_path / "out"
    with subprocess.Popen(command(out), stderr=subprocess.PIPE, text=True) as running:
        while not (out / "ann").exists():  # made by a device of its own, beside the market's
            assert running.poll() is None
            time.sleep(0.05)
        running.send_signal(number)
        assert "interrupted" in running.stderr.read()
        assert running.wait(timeout=60) == 130
    until = time.monotonic() + 20
    while processes_of(out):
        assert time.monotonic() < until
        time.sleep(0.1)
