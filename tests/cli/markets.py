"""A market as a process of its own, the command line as people type it, and owners with devices."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedbourse.cli import main
from fedbourse.encoding.canonical import canonical
from fedbourse.game import share_at
from fedbourse.protocol.connection import Connection
from fedbourse.protocol.keys import SigningKey
from fedbourse.tasks.card import TaskCard
from fedbourse.testing.small_card import SMALL_CARD as CARD

WAIT_S = 60


@dataclass(frozen=True)
class Running:
    """A market that answers."""

    process: subprocess.Popen[str]
    ready: dict
    folder: Path

    @property
    def url(self) -> str:
        return self.ready["url"]

    @property
    def operator(self) -> Path:
        return Path(self.ready["operator_token_file"])

    def stop(self) -> tuple[int, str]:
        """End it as an operator would; return its exit code and all that it logged."""
        self.process.terminate()
        _, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, err


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "fedbourse", *map(str, arguments)]


@contextmanager
def running_market(folder: Path, *arguments: object, port: object = 0):
    """Start a market on a free port, and end it with the block."""
    serve = command("serve", "--folder", folder, "--port", port, "--json", *arguments)
    with subprocess.Popen(
        serve, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield Running(process, json.loads(line), folder)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(timeout=WAIT_S)


class Shell:
    """Runs commands against one market, and reads what they print."""

    def __init__(self, capsys, url: str) -> None:
        self._capsys, self._url = capsys, url

    def __call__(self, *arguments: object, token: Path | None = None) -> tuple[int, str, str]:
        """Return the exit code, and what was printed."""
        named = ["--server", self._url] + (["--token-file", str(token)] if token else [])
        self._capsys.readouterr()
        code = main([*map(str, arguments), *named])
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    def json(self, *arguments: object, token: Path | None = None):
        """Return the document that a command prints."""
        code, out, err = self(*arguments, "--json", token=token)
        assert code == 0, err
        return json.loads(out)

    def refused(self, *arguments: object, token: Path | None = None) -> tuple[int, str]:
        """Return the exit code and the one sentence of a command that must fail."""
        code, out, err = self(*arguments, token=token)
        assert code != 0, out
        lines = err.strip().splitlines()
        assert len(lines) == 1, err
        assert lines[0].startswith("fedbourse: ")
        return code, lines[0]


def new_token(shell: Shell, market: Running, party: str, folder: Path, scope: str = "") -> Path:
    """Make a token for a party, in a file."""
    file = folder / f"{party.replace(':', '-')}.token"
    scope = scope or party.split(":", maxsplit=1)[0]
    made = shell.json(
        "token", "create", "--party", party, "--scope", scope, "--out", file, token=market.operator
    )
    assert "token" not in made
    return file


def paid_in(
    shell: Shell, market: Running, token: Path, *, party: str, credits: str, reference: str
):
    """Let money come in, and credit it."""
    line = {"reference": reference, "party": party, "credits": credits}
    with (market.folder / "payments" / "received.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    return shell.json("account", "deposit", reference, token=token)


class Owner:
    """An owner whose device does by hand what a device program does by itself."""

    def __init__(self, shell: Shell, market: Running, name: str) -> None:
        self.party = f"owner:{name}"
        made = shell.json("token", "enrol", "--owner", self.party, token=market.operator)
        self._key = SigningKey.generate()
        self.connection = Connection(market.url, key=self._key)
        body = {"token": made["token"], "public_key": self._key.public}
        self.connection.post("/v1/enrolments", body)

    def like(self, task: dict) -> None:
        body = {"value": None, "previous": task["card"]}
        self.connection.put(f"/v1/tasks/{task['task']}/interest", body)

    def plan(self, task: dict, budget: float) -> None:
        body = {"tick": task["tick"], "budget": budget, "previous": task["offer"]}
        self.connection.put(f"/v1/tasks/{task['task']}/plan", body)

    def participation(self, task: dict) -> dict:
        return self.connection.get(f"/v1/tasks/{task['task']}/participation")

    def decide(self, task: dict, *, accept: bool) -> None:
        path = f"/v1/tasks/{task['task']}"
        offered = self.participation(task)["terms"]
        body = {"accept": accept, "digest": offered["digest"]}
        if accept:
            body["signature"] = self._key.sign(canonical(offered["terms"]))
        self.connection.post(f"{path}/terms", body)

    def send_update(self, task: dict, number: int, *, card=None, gradient=None) -> None:
        """Send noise, or the gradient at the model with noise, where one is given."""
        path = f"/v1/tasks/{task['task']}"
        parameters = {"after": number - 1, "wait": 20}
        response = self.connection.fetch(f"{path}/round-request", parameters, wait_s=20)
        assert response.headers["fedbourse-round"] == str(number)
        budget = self.participation(task)["allocation"]["budget"]
        card = TaskCard.of(CARD) if card is None else card
        scale = card.privacy_terms(task=task["task"], budget=budget).scale
        vector = np.random.default_rng(number).normal(size=card.dimension)
        vector *= scale * np.sqrt(card.dimension) / np.linalg.norm(vector)
        if gradient is not None:
            vector += gradient(np.frombuffer(response.content, dtype="<f8"))
        content = vector.astype("<f8").tobytes()
        self.connection.put_bytes(f"{path}/rounds/{number}/update", content)


@contextmanager
def owners(shell: Shell, market: Running, *names: str):
    """Enrol a device for each of these owners."""
    enrolled = [Owner(shell, market, name) for name in names]
    try:
        yield enrolled
    finally:
        for owner in enrolled:
            owner.connection.close()


def replied(shell: Shell, name: str, people: dict[Owner, float]) -> dict:
    """Let owners with these values reply to ticks until the price is found; return the task."""
    ticks: set[int] = set()
    end = time.monotonic() + WAIT_S
    while (task := shell.json("task", "show", name))["state"] == "announced":
        assert time.monotonic() < end
        if task["tick"] not in ticks:
            ticks.add(task["tick"])
            total, reward = task["total_budget"], task["reward_micro"] / 1e6
            for owner, value in people.items():
                zero_from = owner.participation(task)["interest"]["zero_from"]
                if zero_from is None or total < zero_from:  # a zero stands, and is not waited for
                    owner.plan(task, total * share_at(value, total, reward=reward))
        time.sleep(0.05)
    return task


def whole_trade(shell: Shell, buyer: Path, card: Path, people: list[Owner]) -> str:
    """Carry out a trade: the last of four owners sells nothing, the third declines."""
    task = shell.json("task", "create", card, token=buyer)
    name = task["task"]
    shell.json("task", "open", name, token=buyer)
    for owner in people:
        owner.like(task)
    shell.json("task", "announce", name, token=buyer)
    values = dict(zip(people, (1.0, 1.0, 1.2, 1000.0), strict=True))
    task = replied(shell, name, values)
    for owner in people[:2]:
        owner.decide(task, accept=True)
    assert shell.refused("task", "train", name, token=buyer)[0] == 11  # one may still sign
    people[2].decide(task, accept=False)
    until(lambda: shell.json("task", "show", name)["settled_tick"] is None)
    del values[people[2]]
    task = replied(shell, name, values)
    for owner in people[:2]:
        owner.decide(task, accept=True)
    until(lambda: shell.json("task", "show", name)["review_ends_ms"] is not None)
    assert shell.json("task", "train", name, token=buyer)["state"] == "training"
    for number in range(CARD["rounds"]):
        for owner in people[:2]:
            owner.send_update(task, number)
    until(lambda: shell.json("task", "show", name)["state"] == "completed")
    return name


def until(what) -> None:
    """Wait for something that happens soon."""
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)
