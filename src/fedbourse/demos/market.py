"""``serve --demo``: a market filled with simulated tasks, so that there is something to see.

Everything goes through the market's API: the buyer has a token, and each owner has a device that
signs, plans, delivers and keeps to its budget, over the loopback network. The tasks are polled and
moved to where they should be, so that a start on the same folder goes on.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedbourse.app.configuration import MarketSettings
from fedbourse.app.machine import write_private
from fedbourse.app.server import OPERATOR, Ready, serve_market
from fedbourse.demos.market_scenes import (
    BUYER,
    FINISHED,
    LIFETIME_EPSILON,
    NAP_EVERY,
    NAP_S,
    PEOPLE,
    SCENES,
    TRAINING,
    Person,
    Scene,
    SimulatedHours,
    buyer_records,
)
from fedbourse.device import Agent, DeviceSettings
from fedbourse.device.live_deal import Event
from fedbourse.errors import Conflict, FedbourseError, InvalidFile
from fedbourse.privacy.zcdp import DELTA, rho_for
from fedbourse.protocol.connection import Connection

PARTIES = {
    "buyer": BUYER,
    "owner": PEOPLE[0].owner,
    "operator": OPERATOR,
    "auditor": "auditor:demo",
}
_PLAY_MONEY = 1000
_REFERENCE = "play-money"
_LOOK_S = 0.5
_REST_S = 15.0
"""How long the market rests between two trainings."""
_END_S = 2.0
_ENDED = ("completed", "cancelled")
_LOG = logging.getLogger("fedbourse.demo")


@dataclass(frozen=True)
class DemoReady:
    """Where the demonstration is, and how to sign in."""

    market: Ready
    tokens: dict[str, str]
    """The token of a buyer, an owner, the operator and an auditor."""
    records: Path
    """A table of the buyer's own, to evaluate models on."""


def serve_demo(
    settings: MarketSettings,
    *,
    on_ready: Callable[[DemoReady], None],
    on_step: Callable[[str], None] = lambda sentence: None,
    pace: float = 1.0,
) -> None:
    """Serve a market that fills itself, until SIGTERM or SIGINT.

    ``pace`` stretches the pauses that let people watch; at 0, devices train at full speed.
    """
    demo = _MarketDemo(settings.folder, on_ready, on_step, pace)
    try:
        serve_market(replace(settings, demo=True), on_ready=demo.start, on_stop=demo.stop)
    finally:
        demo.end()
    if demo.failed is not None:
        raise demo.failed


class _MarketDemo:
    """The buyer and the owners of one demonstration, beside the market that they trade in."""

    def __init__(
        self,
        folder: Path,
        on_ready: Callable[[DemoReady], None],
        on_step: Callable[[str], None],
        pace: float,
    ) -> None:
        self._folder, self._on_ready, self._say, self._pace = folder, on_ready, on_step, pace
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._agents: list[Agent] = []
        self._connections: list[Connection] = []
        self._quick: set[str] = set()
        self._ended_s: dict[str, float] = {}
        self._said: set[str] = set()
        self.failed: FedbourseError | None = None

    def start(self, ready: Ready) -> None:
        """Begin, without keeping the market waiting: it must respond first."""
        self._run("demo", lambda: self._fill(ready))

    def stop(self) -> None:
        """Tell everybody to end, while the market still responds."""
        self._stop.set()
        for agent in self._agents:
            agent.stop.set()

    def end(self) -> None:
        """Wait until everybody has ended."""
        self.stop()
        until = time.monotonic() + _END_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        for connection in self._connections:
            connection.close()

    def _run(self, name: str, work: Callable[[], None]) -> None:
        """Work in a thread; where it fails, the market ends, and says why."""

        def tried() -> None:
            try:
                work()
            except FedbourseError as error:
                if not self._stop.is_set():
                    self.failed = self.failed or error
                    os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=tried, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _fill(self, ready: Ready) -> None:
        tokens = self._tokens(ready)
        buyer = self._connect(ready.url, tokens["buyer"])
        operator = self._connect(ready.url, tokens["operator"])
        records = self._folder / "buyer-records.csv"
        write_private(records, buyer_records())
        self._on_ready(DemoReady(ready, tokens, records))
        self._pay_in(buyer)
        self._look(buyer)  # before devices come, so that they find something
        for person in PEOPLE:
            self._run(person.name, partial(self._own, person, ready, operator))
        while not self._stop.wait(_LOOK_S):
            try:
                self._look(buyer)
            except FedbourseError as error:
                if not self._stop.is_set():
                    self._say_once(f"the buyer could not go on: {error}")

    # who is who

    def _connect(self, url: str, token: str) -> Connection:
        connection = Connection(url, token=token)
        self._connections.append(connection)
        return connection

    def _tokens(self, ready: Ready) -> dict[str, str]:
        """Return a token for each kind of visitor, the same ones at each start."""
        files = {kind: self._folder / f"{kind}.token" for kind in PARTIES}
        if not files["operator"].exists():
            raise InvalidFile(
                f"{files['operator']} is gone, and with it the operator of the demonstration; "
                "start one in another folder"
            )
        tokens = {"operator": files["operator"].read_text(encoding="ascii").strip()}
        operator = self._connect(ready.url, tokens["operator"])
        for kind, party in PARTIES.items():
            if kind != "operator" and not files[kind].exists():
                token = operator.post("/v1/tokens", {"party": party, "scopes": [kind]})["token"]
                write_private(files[kind], f"{token}\n")
            tokens[kind] = files[kind].read_text(encoding="ascii").strip()
        return {kind: tokens[kind] for kind in PARTIES}

    def _pay_in(self, buyer: Connection) -> None:
        """Give the buyer play money, once."""
        if buyer.get(f"/v1/accounts/{BUYER}/statement", {"limit": 1})["entries"]:
            return
        payment = {"reference": _REFERENCE, "party": BUYER, "credits": str(_PLAY_MONEY)}
        # In place of what a crash left, so that a payment has one line.
        write_private(self._folder / "payments" / "received.jsonl", f"{json.dumps(payment)}\n")
        buyer.post("/v1/deposits", {"reference": _REFERENCE})

    # owners

    def _device(self, person: Person, ready: Ready, operator: Connection) -> Agent:
        """Return a person's device, enrolled in the market wherever it is served now."""
        folder = self._folder / "devices" / person.name
        rest = _Rests(person, self._pace, self._quick)
        options: dict[str, Any] = {"data": SimulatedHours(person), "on_event": rest}
        if (folder / "device.json").exists():
            agent = Agent(folder, **options)
        else:
            cap = rho_for(epsilon=LIFETIME_EPSILON, delta=DELTA)
            settings = DeviceSettings(value=person.value, lifetime_cap=cap)
            agent = Agent.create(folder, settings, **options)
        rest.stop = agent.stop
        for market in agent.deals.markets():
            agent.deals.put_market(replace(market, server=ready.url))
        if not agent.deals.markets():
            enrolment = operator.post("/v1/enrolment-tokens", {"owner": person.owner})
            agent.enrol(ready.url, enrolment["token"])
        return agent

    def _own(self, person: Person, ready: Ready, operator: Connection) -> None:
        """Join what is open with a person's device, and follow it, until all ends."""
        with self._device(person, ready, operator) as agent:
            self._agents.append(agent)
            if self._stop.is_set():  # the stop may have come before this device was listed
                agent.stop.set()
            while not self._stop.is_set():
                try:
                    agent.run(join_open=True)
                except FedbourseError as error:  # of one deal; the next run goes on with others
                    if not self._stop.is_set():
                        self._say_once(f"a device could not go on: {error}")
                self._stop.wait(_LOOK_S)

    # the buyer

    def _look(self, buyer: Connection) -> None:
        """Bring each kind of task to where it should be."""
        own = _tasks(buyer)
        by_scene = {
            scene: [task for task in own if task["goal"] == scene.card.goal] for scene in SCENES
        }
        self._quick.update(task["task"] for task in by_scene[FINISHED])
        finished = any(task["state"] == "completed" for task in by_scene[FINISHED])
        for scene, tasks in by_scene.items():
            # One after the other: a training that is watched is not disturbed by one that hastens.
            if scene is TRAINING and not finished:
                continue
            try:
                self._move(buyer, scene, tasks)
            except Conflict as moved:  # the scheduler, or a visitor, was faster
                _LOG.debug("%s", moved)

    def _move(self, buyer: Connection, scene: Scene, tasks: list[dict[str, Any]]) -> None:
        newest = tasks[0] if tasks else None
        if newest is None or (newest["state"] in _ENDED and self._again(scene, tasks)):
            newest = buyer.post("/v1/tasks", scene.card.document)
            if scene.quick:
                self._quick.add(newest["task"])
        name, state = newest["task"], newest["state"]
        if state == "draft":
            buyer.post(f"/v1/tasks/{name}/open", {})
        elif state == "open" and scene.announced:
            if (buyer.get(f"/v1/tasks/{name}")["interested"] or 0) >= len(PEOPLE):
                buyer.post(f"/v1/tasks/{name}/announce", {})
        elif state in ("open", "training", "completed"):
            self._say_once(f"task {name} is {state}: {scene.card.goal}")

    def _again(self, scene: Scene, tasks: list[dict[str, Any]]) -> bool:
        """Say whether another task of a kind may follow its last one, which has ended."""
        newest = tasks[0]
        if scene.quick and newest["state"] == "completed":
            return False
        if len(tasks) >= scene.most:
            self._say_once(
                f"{len(tasks)} tasks like this one were traded, and no more follow: "
                f"{scene.card.goal} To begin anew, stop and delete {self._folder}"
            )
            return False
        ended_s = self._ended_s.setdefault(newest["task"], time.monotonic())
        return time.monotonic() - ended_s >= _REST_S * self._pace

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self._say(sentence)


class _Rests:
    """Lets a device rest after each update, so that people can watch the rounds go by."""

    def __init__(self, person: Person, pace: float, quick: set[str]) -> None:
        self._person, self._pace, self._quick = person, pace, quick
        self.stop = threading.Event()

    def __call__(self, event: Event) -> None:
        if event["event"] != "delivered" or event["task"] in self._quick:
            return
        nap = self._person.naps and event["round"] % NAP_EVERY == NAP_EVERY - 1
        self.stop.wait((NAP_S if nap else self._person.pause_s) * self._pace)


def _tasks(buyer: Connection) -> list[dict[str, Any]]:
    """Return all tasks of the buyer's, the newest first."""
    tasks: list[dict[str, Any]] = []
    before = None
    while True:
        page = buyer.get("/v1/tasks", {"limit": 100, "before": before})
        tasks += [task for task in page["tasks"] if task["buyer"] == BUYER]
        before = page["next"]
        if before is None:
            return tasks
