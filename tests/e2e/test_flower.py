"""Training on Flower for real: its simulation on Ray, and stock SuperLink and SuperNodes.

A stock round takes some seconds, so that each test here proves several things.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from fedbourse.flower.device import FlowerDevice

DATA = ["--data", "synthetic:d=20,n=3000", "--samples", "100", "--step-size", "2", "--json"]


@dataclass
class Done:
    """A command that ended."""

    code: int
    stdout: str
    stderr: str
    folder: Path

    @property
    def document(self) -> dict[str, Any]:
        assert self.code == 0, self.stderr
        found: dict[str, Any] = json.loads(self.stdout)
        return found

    @property
    def model(self) -> Any:
        with np.load(self.folder / "model.npz") as stored:
            return stored["parameters"]


class Training:
    """``fedbourse train`` as a process, in a home that must stay as it is."""

    def __init__(self, folder: Path, *options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.stderr = folder, ""
        command = [sys.executable, "-m", "fedbourse", "train", *DATA, *options]
        self.process = subprocess.Popen(
            [*command, "--folder", str(folder / "run"), "--out", str(folder / "model.npz")],
            env=os.environ | {"HOME": str(folder), "FLWR_HOME": str(folder / "not-ours")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, text: str) -> None:
        """Read standard error up to a line with this text."""
        for line in _open(self.process.stderr):
            self.stderr += line
            if text in line:
                return
        raise AssertionError(f"no {text!r} in {self.stderr}")

    def end(self) -> Done:
        stdout, stderr = self.process.communicate(timeout=150)
        return Done(self.process.returncode, stdout, self.stderr + stderr, self.folder)

    def started(self) -> dict[str, int]:
        """Return the processes of Flower's that were started last."""
        lines = (self.folder / "run" / "flower" / "processes.jsonl").read_text().splitlines()
        return {line["name"]: line["pid"] for line in map(json.loads, lines)}


def _open(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def run(folder: Path, *options: str) -> Done:
    return Training(folder, *options).end()


def left_behind(folder: Path) -> list[str]:
    """Return the processes that still work in a folder, by their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state = (process / "stat").read_text().rsplit(")", 1)[1].split()[0]
            environment = (process / "environ").read_bytes()
            name = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if state != "Z" and f"FLWR_HOME={folder}/run/flower".encode() in environment:
            found.append(name)
    return found


def none_left_behind(folder: Path) -> bool:
    """Say whether all are gone, or go within a moment: some end when they miss their parent."""
    for _ in range(50):
        if not left_behind(folder):
            return True
        time.sleep(0.2)
    raise AssertionError(left_behind(folder))


def spent(folder: Path, owner: int) -> float:
    device = FlowerDevice(folder / "run" / "devices" / f"owner-{owner}")
    return float(sum(account.spent for account in device.accounts()))


SIMULATED = ["--budgets", "0.5,1,1.5,2", "--rounds", "3", "--noise", "simulated", "--seed", "3"]
STOCK = ["--budgets", "0.5,0.5,1.0", "--rounds", "2", "--seed", "4"]


def test_a_simulation_on_ray_is_the_training_of_one_process(tmp_path: Path) -> None:
    simulation = run(tmp_path / "ray", *SIMULATED, "--engine", "simulation")
    local = run(tmp_path / "local", *SIMULATED, "--engine", "local")
    np.testing.assert_allclose(simulation.model, local.model, rtol=0, atol=1e-9)
    assert simulation.document["accuracy"] == local.document["accuracy"]
    for i, budget in enumerate((0.5, 1, 1.5, 2)):
        line = simulation.document["owners"][i]
        assert line["delivered"] == 3
        assert line["spent_rho"] == spent(simulation.folder, i) <= budget
        assert line["spent_rho"] == pytest.approx(budget)
    assert none_left_behind(simulation.folder)
    assert not (simulation.folder / ".flwr").exists()
    assert not (simulation.folder / "not-ours").exists()


def test_after_a_killed_superlink_the_same_command_ends_in_the_same_model(tmp_path: Path) -> None:
    options = [*STOCK, "--noise", "simulated"]
    first = Training(tmp_path / "stock", *options, "--engine", "flower")
    first.until("round 1/2")
    os.kill(first.started()["superlink"], signal.SIGKILL)
    killed = first.end()
    assert killed.code == 14
    assert "the same command goes on from there" in killed.stderr.splitlines()[-1]
    assert "Traceback" not in killed.stderr
    assert none_left_behind(tmp_path / "stock")

    again = run(tmp_path / "stock", *options, "--engine", "flower")
    assert [line["delivered"] for line in again.document["owners"]] == [2, 2, 2]
    assert "round 1/2" not in again.stderr
    local = run(tmp_path / "local", *options)
    np.testing.assert_allclose(again.model, local.model, rtol=0, atol=1e-9)
    assert [spent(again.folder, i) for i in range(3)] == pytest.approx([0.5, 0.5, 1.0])


def test_a_killed_supernode_is_a_dropout(tmp_path: Path) -> None:
    training = Training(tmp_path, *STOCK, "--engine", "flower", "--round-seconds", "20")
    training.until("round 1/2")
    os.kill(training.started()["supernode-owner-1"], signal.SIGKILL)
    document = training.end().document
    assert document["noise"] == "exact"
    assert [line["delivered"] for line in document["owners"]] == [2, 1, 2]
    assert spent(tmp_path, 1) <= 0.5
    assert none_left_behind(tmp_path)


def test_an_interruption_leaves_nothing_behind(tmp_path: Path) -> None:
    training = Training(tmp_path, *STOCK, "--engine", "flower")
    while not (tmp_path / "run" / "flower" / "supernode-owner-2.log").exists():
        assert training.process.poll() is None
        time.sleep(0.05)
    training.process.send_signal(signal.SIGINT)
    done = training.end()
    assert done.code == 130
    assert done.stderr.splitlines()[-1] == "fedbourse: interrupted"
    assert none_left_behind(tmp_path)
