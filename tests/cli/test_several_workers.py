"""One training that several processes serve: devices wait at one and answer at the other."""

from __future__ import annotations

import json
import threading

import numpy as np

from cli.markets import (
    CARD,
    Shell,
    new_token,
    owners,
    paid_in,
    replied,
    running_market,
    until,
)
from fedbourse.protocol.connection import Connection
from fedbourse.tasks.card import TaskCard

ROUNDS = 12
ANSWERING = ("ann", "bob", "cy")


def train(url, owner, task, failed):
    """Answer every round, each request over a new connection, which any worker may take."""
    path, after = f"/v1/tasks/{task}", -1
    card = TaskCard.of(CARD)
    rng = np.random.default_rng(sum(owner.party.encode()))
    try:
        budget = owner.connection.get(f"{path}/participation")["allocation"]["budget"]
        scale = card.privacy_terms(task=task, budget=budget).scale
        while after < ROUNDS - 1:
            with Connection(url, key=owner._key) as one, Connection(url, key=owner._key) as two:
                asked = {"after": after, "wait": 10}
                found = one.fetch(f"{path}/round-request", asked, wait_s=10)
                if found.status == 204:
                    continue
                after = int(found.headers["fedbourse-round"])
                vector = rng.normal(0, scale, card.dimension)
                two.put_bytes(f"{path}/rounds/{after}/update", vector.astype("<f4").tobytes())
    except Exception as error:
        failed.append(error)


def test_several_workers_serve_one_training_to_its_end(postgresql, tmp_path, capsys) -> None:
    card = tmp_path / "card.json"
    card.write_text(json.dumps(CARD | {"rounds": ROUNDS, "deadlines": {"review_s": 0}}))
    with (
        postgresql.database() as url,
        running_market(tmp_path / "m", "--database", url, "--workers", 2) as market,
    ):
        shell = Shell(capsys, market.url)
        acme = new_token(shell, market, "buyer:acme", tmp_path)
        kay = new_token(shell, market, "auditor:kay", tmp_path)
        paid_in(shell, market, acme, party="buyer:acme", credits="20", reference="first")
        with owners(shell, market, *ANSWERING) as people:
            task = shell.json("task", "create", card, token=acme)
            name = task["task"]
            shell.json("task", "open", name, token=acme)
            for owner in people:
                owner.like(task)
            shell.json("task", "announce", name, token=acme)
            values = dict.fromkeys(people, 1.0) | {people[-1]: 1000.0}  # who sells nothing
            task = replied(shell, name, values)
            for owner in people[:-1]:
                owner.decide(task, accept=True)
            until(lambda: shell.json("task", "show", name)["state"] == "training")
            failed: list[Exception] = []
            devices = [
                threading.Thread(target=train, args=(market.url, owner, name, failed))
                for owner in people[:-1]
            ]
            for device in devices:
                device.start()
            for device in devices:
                device.join()
            assert failed == []
            until(lambda: shell.json("task", "show", name)["state"] == "completed")
            paid = [
                owner.connection.get(f"/v1/tasks/{name}/participation")["allocation"]
                for owner in people[:-1]
            ]
        assert [line["earned_micro"] for line in paid] == [line["payment_micro"] for line in paid]
        assert sum(line["earned_micro"] for line in paid) == CARD["reward"] * 1_000_000
        monitoring = shell.json("task", "monitoring", name, token=kay)
        assert [each["updates"] for each in monitoring["devices"]] == [ROUNDS] * 2
        assert [each["flags"] for each in monitoring["devices"]] == [[]] * 2
        code, out, _ = shell("task", "monitoring", name, token=kay)
        assert code == 0
        assert "owner:ann" in out
        assert "Pure noise of the right size passes" in " ".join(out.split())
        assert (
            shell.refused("task", "monitoring", name, token=acme)[0] == 9
        )  # the buyer sees totals
        checks = shell.json("verify", name, token=kay)["checks"]
        assert [c for c in checks if c["passed"] is False] == []
