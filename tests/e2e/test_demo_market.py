"""``serve --demo`` as a newcomer starts it: a living market within a minute, which goes on."""

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx2
import numpy as np
import pytest

from fedbourse.cli import main
from fedbourse.demos import market_scenes
from fedbourse.demos.market_scenes import FINISHED, LIFETIME_EPSILON, PEOPLE, TRAINING, WAITING
from fedbourse.errors import InvalidData
from fedbourse.learning.models import model_named
from fedbourse.privacy.zcdp import DELTA, rho_for
from fedbourse.protocol.connection import Connection
from fedbourse.tasks.card import TaskCard
from fedbourse.testing.small_card import SMALL_CARD

WITHIN_S = 180
"""Ten times what it takes on an idle machine."""


@contextmanager
def demo(folder):
    """Start a demonstration, and end it as a person does."""
    command = [sys.executable, "-m", "fedbourse", "serve", "--demo", "--folder", str(folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "--port", "0", "--json"], **pipes) as process:
        try:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield json.loads(line)
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 0
            assert time.monotonic() - began < 15
            assert "Traceback" not in process.stderr.read()
        finally:
            if process.poll() is None:
                process.kill()


def until(found, within_s=WITHIN_S):
    """Return what is found as soon as it is."""
    end = time.monotonic() + within_s
    while not (update := found()):
        assert time.monotonic() < end
        time.sleep(0.2)
    return update


def connected(ready):
    """Return the auditor's connection."""
    return Connection(ready["url"], token=ready["tokens"]["auditor"])


def task_of(line, scene, state):
    """Return the newest task of a scene if it is in this state."""
    tasks = [each for each in line.get("/v1/tasks")["tasks"] if each["goal"] == scene.card.goal]
    return tasks[0] if tasks and tasks[0]["state"] == state else None


def signed_in_page(url, token):
    """Return the market's page as somebody who has signed in sees it."""
    with httpx2.Client(base_url=url, headers={"Origin": url}, trust_env=False) as browser:
        assert "play money" in browser.get("/").text
        response = browser.post("/sign-in", data={"token": token, "next": "/"})
        assert response.status_code == 303
        return browser.get("/").text


def test_a_newcomer_sees_all_three_states_and_a_restart_goes_on(tmp_path) -> None:
    folder = tmp_path / "demo"
    with demo(folder) as ready, connected(ready) as auditor:
        finished = until(lambda: task_of(auditor, FINISHED, "completed"))
        training = until(lambda: task_of(auditor, TRAINING, "training"))
        waiting = until(lambda: task_of(auditor, WAITING, "open"))
        page = signed_in_page(ready["url"], ready["tokens"]["buyer"])
        for task in (finished, training, waiting):
            assert f"/tasks/{task['task']}" in page
        assert "buyer:demo" in page
        # Whether a device joins does not depend on how many records it has.
        path = f"/v1/tasks/{waiting['task']}"
        until(lambda: auditor.get(path)["interested"] == len(PEOPLE))
        whoever_delivers_is_paid_and_keeps_to_its_budget(auditor, finished["task"], folder)
        the_model_is_worth_having(ready, finished["task"])
        round = task_of(auditor, TRAINING, "training")["round"]
        until(lambda: task_of(auditor, TRAINING, "training")["round"] > round)
    # The start compares every balance with its transfers, and refuses books that differ.
    with demo(folder) as again, connected(again) as auditor:
        assert again["tokens"] == ready["tokens"]
        found = task_of(auditor, TRAINING, "training")
        assert found["task"] == training["task"]
        until(lambda: task_of(auditor, TRAINING, "training")["round"] > found["round"] + 1)
        assert len(auditor.get("/v1/tasks")["tasks"]) == 3
        entries = auditor.get("/v1/accounts/buyer:demo/statement")["entries"]
        assert sum(entry["id"].startswith("deposit/") for entry in entries) == 1


def whoever_delivers_is_paid_and_keeps_to_its_budget(auditor, task, folder) -> None:
    report = auditor.get(f"/v1/tasks/{task}/report")
    money = report["money_micro"]
    assert money["held"] == money["earned"] == 10_000_000
    lines = [each["allocation"] for each in auditor.get(f"/v1/tasks/{task}/allocations")["owners"]]
    sold = [line for line in lines if line]
    assert 3 <= len(sold) < len(PEOPLE)
    assert all(0 < line["budget"] < rho_for(epsilon=LIFETIME_EPSILON, delta=DELTA) for line in sold)
    token = ["--server", auditor.server_url, "--token-file", str(folder / "auditor.token")]
    assert main(["verify", task, *token]) == 0


def the_model_is_worth_having(ready, task) -> None:
    with Connection(ready["url"], token=ready["tokens"]["buyer"]) as buyer:
        parameters = np.frombuffer(buyer.get_bytes(f"/v1/tasks/{task}/model"), dtype="<f8")
    card = FINISHED.card
    table = market_scenes.hours(seed=len(PEOPLE), count=2000)
    columns = [(table[each.name] - each.shift) / each.scale for each in card.layout.columns]
    right = table[card.layout.label] == card.layout.classes[1]
    guess = np.column_stack([*columns, np.ones(2000)]) @ parameters > 0
    assert model_named(card.model, features=9, classes=2).dimension == len(parameters)
    assert np.mean(guess == right) > max(right.mean(), 1 - right.mean()) + 0.1


def test_the_buyer_has_records_of_its_own_with_every_column_and_label() -> None:
    lines = market_scenes.buyer_records().splitlines()
    names = lines[0].split(",")
    assert len(lines) == 2001
    assert {len(line.split(",")) for line in lines} == {len(names)}
    for scene in market_scenes.SCENES:
        layout = scene.card.layout
        assert {column.name for column in layout.columns} | {layout.label} <= set(names)


def test_the_same_hours_each_time_and_a_card_that_does_not_fit_is_refused() -> None:
    ann = PEOPLE[0]
    first, second = (market_scenes.SimulatedHours(ann)(FINISHED.card) for _ in range(2))
    assert np.array_equal(first[0], second[0])
    assert first[0].shape == (ann.hours, 8)
    plain = TaskCard.of(SMALL_CARD | {"layout": None})
    features, labels = market_scenes.SimulatedHours(ann)(plain)
    assert features.shape == (ann.hours, plain.features - 1)
    assert set(labels.tolist()) == {0.0, 1.0}
    layout = FINISHED.card.layout.document | {"label": "income"}
    other = TaskCard.of(FINISHED.card.document | {"layout": layout})
    with pytest.raises(InvalidData, match="the card asks for 'income'; simulated hours have"):
        market_scenes.SimulatedHours(ann).check_schema(other)
    wide = TaskCard.of(FINISHED.card.document | {"features": 20, "dimension": 20, "layout": None})
    with pytest.raises(InvalidData, match="a simulated hour has 8 numbers; the card asks for 19"):
        market_scenes.SimulatedHours(ann).check_schema(wide)
