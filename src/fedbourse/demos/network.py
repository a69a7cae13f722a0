"""The wiring of a whole trade over the network: a market, five devices and a buyer, on loopback.

Every device is a process of its own, with its own folder and its own records. One is killed in
mid-training and started again, one is killed and never comes back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedbourse.app.machine import write_private
from fedbourse.demos.processes import Processes
from fedbourse.errors import CannotWrite
from fedbourse.flower.processes import ended_by_sigterm
from fedbourse.game.columns import FloatArray, IntArray
from fedbourse.learning.data import load
from fedbourse.learning.reference import majority_accuracy
from fedbourse.learning.sources import Source
from fedbourse.protocol.connection import Connection
from fedbourse.tasks.builder import task_card
from fedbourse.tasks.card import Deadlines, TaskCard
from fedbourse.tasks.layout import Column, Layout

ROUNDS, SAMPLES, REWARD = 24, 1000, 0.5
WITHIN_S = 240.0
_SCALES = {"delay": 60.0, "log_delay": 4.0, "distance": 2500.0}
"""How the flights' numbers are scaled; every other column is no or yes."""
_YES_SCALE = 2.0
_CLASSES = ("on time", "late")


@dataclass(frozen=True)
class Part:
    """What a device does in the demonstration."""

    name: str
    value: float
    killed_after: int | None = None
    """How many updates it has delivered when it is killed."""
    returns: bool = True

    @property
    def owner(self) -> str:
        """Whose device it is."""
        return f"owner:{self.name}"


PARTS = (
    Part("ann", 1.0),
    Part("bob", 1.1),
    Part("cat", 1.2, killed_after=8),
    # Late, for each round without its update lasts until its deadline.
    Part("dan", 1.3, killed_after=ROUNDS - 2, returns=False),
    Part("eve", 1.4),
)


def network_demo(
    out: Path, *, on_step: Callable[[str], None] = lambda sentence: None
) -> dict[str, Any]:
    """Carry out the trade in a new folder, and return what came of it."""
    started = time.monotonic()
    _new_folder(out)
    with (
        ended_by_sigterm(),
        # Simulated owners: what their folders guard is remembered in the demonstration alone.
        Processes(out, within_s=WITHIN_S, state=out / "state") as processes,
    ):
        serving = processes.start(
            "market", "serve", "--folder", out / "market", "--port", 0, "--json"
        )
        source = load("flights")
        market = processes.first_line("market", serving)
        on_step(f"the market is served at {market['url']}")
        demo = _NetworkDemo(out, processes, market, source, on_step)
        try:
            return demo.run() | {"seconds": round(time.monotonic() - started, 1)}
        finally:
            demo.close()


def _new_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise CannotWrite(
                f"{out} must be a new or an empty folder; devices never overwrite one"
            )
    except OSError as error:
        raise CannotWrite(f"{out}: {error.strerror}") from None


class _NetworkDemo:
    """One demonstration: who asks whom, and in which order."""

    def __init__(
        self,
        out: Path,
        processes: Processes,
        market: dict[str, Any],
        source: Source,
        on_step: Callable[[str], None],
    ) -> None:
        self._out, self._processes, self._source, self._say = out, processes, source, on_step
        self._url = str(market["url"])
        self._received = out / "market" / "payments" / "received.jsonl"
        operator = (out / "market" / "operator.token").read_text().strip()
        self._operator = Connection(self._url, token=operator)
        self._buyer = Connection(self._url, token=self._token("buyer"))
        self._auditor = Connection(self._url, token=self._token("auditor"))

    def close(self) -> None:
        """Close the sockets."""
        for connection in (self._operator, self._buyer, self._auditor):
            connection.close()

    def run(self) -> dict[str, Any]:
        """Carry out the trade."""
        self._pay_in()
        rows = np.random.default_rng(5).permutation(len(self._source.pool))
        own = dict(
            zip([part.name for part in PARTS], np.array_split(rows, len(PARTS)), strict=True)
        )
        with ThreadPoolExecutor(len(PARTS)) as pool:
            list(pool.map(lambda part: self._make(part, own[part.name]), PARTS))
            self._say(
                f"{len(PARTS)} devices have a folder, {SAMPLES} flights or more, and a market"
            )
            card = _card(self._source)
            task = str(self._buyer.post("/v1/tasks", card.document)["task"])
            self._buyer.post(f"/v1/tasks/{task}/open", {})
            list(pool.map(lambda part: self._device(part, "join", task, "--no-wait"), PARTS))
        self._say(f"all of them have joined task {task}; none has revealed its value")
        documents = self._train(task)
        self._say("the task has ended; everybody recomputes it")
        return self._facts(task, card, documents)

    def _token(self, kind: str) -> str:
        body = {"party": f"{kind}:demo", "scopes": [kind]}
        secret = str(self._operator.post("/v1/tokens", body)["token"])
        write_private(self._out / f"{kind}.token", f"{secret}\n")
        return secret

    def _pay_in(self) -> None:
        payment = {"reference": "demo-payment", "party": "buyer:demo", "credits": str(REWARD)}
        with self._received.open("a", encoding="utf-8") as file:
            file.write(json.dumps(payment) + "\n")
        self._buyer.post("/v1/deposits", {"reference": "demo-payment"})

    def _make(self, part: Part, rows: IntArray) -> None:
        """Make a device: its records, its folder, and its place in the market."""
        number = PARTS.index(part)
        table = self._out / f"{part.name}.csv"
        _write_table(table, self._source, rows[: SAMPLES + 100 * number])
        rules = ("--value", part.value, "--lifetime-epsilon", 8, "--data", table)
        self._device(part, "init", *rules)
        secret = self._operator.post("/v1/enrolment-tokens", {"owner": part.owner})["token"]
        token = self._out / f"{part.name}.enrolment"
        write_private(token, f"{secret}\n")
        self._device(part, "enrol", self._url, token)

    def _device(self, part: Part, *arguments: object) -> dict[str, Any]:
        folder = ("--folder", self._out / part.name)
        return self._processes.document(part.name, "device", *arguments, *folder)

    def _train(self, task: str) -> dict[str, dict[str, Any]]:
        """Announce, let all train, kill two of them, and return what the others print at last."""

        def start(part: Part) -> Any:
            folder = self._out / part.name
            return self._processes.start(part.name, "device", "run", "--folder", folder, "--json")

        def reported(part: Part, kind: str, count: int) -> bool:
            return len(self._processes.events(part.name, kind)) >= count

        running = {part.name: start(part) for part in PARTS}
        for part in PARTS:
            self._processes.until(f"{part.name}", partial(reported, part, "following", 1))
        self._buyer.post(f"/v1/tasks/{task}/announce", {})
        self._say(f"the buyer announces {REWARD:g} credits, in escrow since the task opened")
        for part in sorted(PARTS, key=lambda part: part.killed_after or ROUNDS):
            if part.killed_after is not None:
                self._processes.until(
                    f"update {part.killed_after} of {part.name}",
                    partial(reported, part, "delivered", part.killed_after),
                )
                running[part.name].kill()
                running.pop(part.name).communicate()
                if part.returns:
                    running[part.name] = start(part)
                does = "killed and started again" if part.returns else "killed, and stays away"
                self._say(f"{part.name} is {does} after {part.killed_after} updates")
        return {name: self._processes.finished(name, process) for name, process in running.items()}

    def _facts(
        self, task: str, card: TaskCard, documents: dict[str, dict[str, Any]]
    ) -> dict[str, Any]:
        report = self._auditor.get(f"/v1/tasks/{task}/report")
        allocations = {
            each["owner"]: each["allocation"]
            for each in self._auditor.get(f"/v1/tasks/{task}/allocations")["owners"]
        }
        model = card.build()
        content = self._buyer.get_bytes(f"/v1/tasks/{task}/model")
        parameters = np.frombuffer(content, dtype="<f8").astype(np.float64)
        own = self._source.buyer
        devices = [self._device_facts(part, allocations[part.owner], documents) for part in PARTS]
        return {
            "task": task,
            "state": report["state"],
            "rounds": card.rounds,
            "money_micro": report["money_micro"],
            "devices": devices,
            "accuracy": model.accuracy(parameters, own),
            "chance": majority_accuracy(own),
            "validation_records": len(own),
            "verified": {
                "task": self._verified("verify", task),
                "books": self._verified("verify", "books"),
                "devices": self._verified_by_devices(task),
            },
        }

    def _verified(self, *arguments: object) -> int:
        """Return how many checks passed for an auditor; one that fails ends all."""
        token = ("--server", self._url, "--token-file", self._out / "auditor.token")
        return _passed(self._processes.document("auditor", *arguments, *token))

    def _verified_by_devices(self, task: str) -> dict[str, int]:
        alive = [part for part in PARTS if part.returns]
        with ThreadPoolExecutor(len(alive)) as pool:
            counts = pool.map(lambda part: _passed(self._device(part, "verify", task)), alive)
        return dict(zip([part.name for part in alive], counts, strict=True))

    def _device_facts(
        self, part: Part, allocation: dict[str, Any], documents: dict[str, dict[str, Any]]
    ) -> dict[str, Any]:
        """Return one device's trade, as the market and as the device itself have it."""
        printed = documents.get(part.name) or self._device(part, "ledger")
        (deal,) = printed["deals"]
        return {
            "device": part.name,
            "value": part.value,
            "budget": deal["budget"],
            "epsilon_one_record": deal["epsilon_one_record"],
            "epsilon_whole_owner": deal["epsilon_whole_owner"],
            "spent": deal["spent"],
            "payment_micro": allocation["payment_micro"],
            "earned_micro": allocation["earned_micro"],
            "delivered": allocation["delivered"],
            "own_earned_micro": deal["earned_micro"],
            "own_delivered": deal["delivered"],
            "state": deal["state"],
            "killed": part.killed_after is not None,
            "returned": part.returns,
        }


def _passed(verified: dict[str, Any]) -> int:
    return sum(check["passed"] is True for check in verified["checks"])


def _scales(source: Source) -> FloatArray:
    return np.array([_SCALES.get(name, _YES_SCALE) for name in source.feature_names[:-1]])


def _write_table(file: Path, source: Source, rows: IntArray) -> None:
    """Write an owner's flights as it would keep them: minutes, miles, and no or yes."""
    records = source.pool.take(np.sort(rows))
    raw = records.features[:, :-1] * _scales(source)
    lines = [",".join([*source.feature_names[:-1], "arrived"])]
    for numbers, label in zip(raw, records.labels, strict=True):
        lines.append(",".join([*(f"{each:.9g}" for each in numbers), _CLASSES[int(label)]]))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _card(source: Source) -> TaskCard:
    names, scales = source.feature_names[:-1], _scales(source)
    return task_card(
        goal=source.description,
        data=source.name,
        reward=REWARD,
        model=source.default_model,
        rounds=ROUNDS,
        samples=SAMPLES,
        # A round waits for a device that was killed: time enough to come back.
        deadlines=Deadlines(
            interest_s=90, tick_s=20, plans_s=120, terms_s=30, review_s=0, round_s=12
        ),
        validation=f"{len(source.buyer)} flights of the buyer's own",
        layout=Layout(
            tuple(
                Column(name, 0.0, scale) for name, scale in zip(names, scales.tolist(), strict=True)
            ),
            label="arrived",
            classes=_CLASSES,
        ),
    )
