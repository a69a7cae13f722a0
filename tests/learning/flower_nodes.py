"""Flower nodes in one process: the real ClientApp and real messages, behind a Grid of our own."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedbourse.device import DeviceFolder, DeviceSettings
from fedbourse.flower.client_app import app
from fedbourse.flower.device import FlowerDevice, SeededNoise
from fedbourse.flower.recipe import Recipe
from fedbourse.learning.device_records import DeviceRecords
from fedbourse.learning.engines.flower import ROUND_REQUEST
from fedbourse.learning.partition import Federation
from fedbourse.learning.records import Records

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RECIPE = Recipe(
    name="test",
    data="points",
    model="logistic",
    features=6,
    classes=2,
    rounds=4,
    samples=50,
    clip=1.0,
    step_size=0.5,
    aggregation="precision",
)
BUDGETS = (0.5, 1.0, 2.0)

# Flower's own processes set these before an app sees a message.
TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1


def federation(owners: int = 3, seed: int = 1) -> Federation:
    rng = np.random.default_rng(seed)
    features = np.ones((owners * 50, 6))
    features[:, :5] = rng.standard_normal((owners * 50, 5))
    labels = (features[:, 0] > 0).astype(float)
    return Federation(Records(features, labels, 2), np.arange(owners + 1) * 50)


def make_device(
    path: Path, seat: int = 0, *, study_seed: int | None = None, cap: float | None = None
) -> FlowerDevice:
    """Make the folder of an owner who agreed to the recipe."""
    budget = BUDGETS[seat]
    DeviceFolder.create(path, DeviceSettings(value=1.0, lifetime_cap=cap or budget))
    device = FlowerDevice(path)
    terms = tuple(RECIPE.terms(rho) for rho in BUDGETS)
    study = None if study_seed is None else SeededNoise(study_seed, seat, terms)
    records = DeviceRecords.of(federation().parts[seat])
    device.agree(RECIPE, budget, lambda: records, owner=f"owner-{seat}", study=study)
    return device


def context(path: Path | None, **config: Any) -> Context:
    node_config = {} if path is None else {"fedbourse-device": str(path)}
    return Context(
        run_id=1, node_id=7, node_config=node_config | config, state=RecordDict(), run_config={}
    )


def message(content: RecordDict, kind: str = "train", *, node: int = 7) -> Message:
    made = Message(content, node, kind)
    made.metadata.__dict__["_message_id"] = f"message-{next(_numbers)}"
    return made


_numbers = itertools.count()


def ask(path: Path | None, **items: Any) -> ConfigRecord:
    """Ask a node's ClientApp, as a server would, and return the one record of its reply."""
    reply = app(message(RecordDict({ROUND_REQUEST: ConfigRecord(items)})), context(path))
    (record,) = reply.content.values()
    assert isinstance(record, ConfigRecord)
    return record


def round_request(seat: int = 0, *, round: int = 0, model: bytes | None = None) -> dict[str, Any]:
    terms = RECIPE.terms(BUDGETS[seat])
    body = np.zeros(6).tobytes() if model is None else model
    return {"task": terms.task, "terms": terms.digest, "round": round, "model": body}


@dataclass
class Node:
    """A node of the Grid below: its device, its key, and what becomes of its replies."""

    path: Path
    key: bytes = b""
    twist: Callable[[Message, Message], Message | None] = lambda asked, reply: reply


@dataclass
class InProcessGrid:
    """What the engine uses of a Grid; a reply is given out once, as Flower's own does."""

    nodes: dict[int, Node]
    replies: dict[str, Message] = field(default_factory=dict)
    asked: list[tuple[int, str]] = field(default_factory=list)
    now: float = 0.0

    def get_nodes(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(node_id=n, public_key=node.key) for n, node in self.nodes.items()]

    def push_messages(self, messages: list[Message]) -> list[str]:
        names = []
        for asked in messages:
            name = asked.metadata.__dict__["_message_id"] = f"message-{next(_numbers)}"
            node = self.nodes[asked.metadata.dst_node_id]
            self.asked.append((asked.metadata.dst_node_id, asked.metadata.message_type))
            reply = node.twist(asked, app(asked, context(node.path)))
            if reply is not None:
                self.replies[name] = reply
            self._pending.add(name)
            names.append(name)
        return names

    def pull_messages(self, names: list[str]) -> list[Message]:
        found = []
        for name in names:
            if name in self.replies:
                found.append(self.replies.pop(name))
                self._pending.discard(name)
            elif name not in self._pending:
                lost = message(RecordDict())
                lost.metadata.__dict__["_message_id"] = name
                found.append(Message(Error(1, "Message Unavailable"), reply_to=lost))
        return found

    _pending: set[str] = field(default_factory=set)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
