"""The same three owners behind three transports: one process, the market's devices, Flower nodes.

Each transport has the same records, terms and injected noise, so that all of them train one model.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cli.markets import running_market
from fedbourse.device import Agent, BiddingStrategy, Deal, DeviceSettings, KnownMarket, SpendStore
from fedbourse.device.deal import SentReply
from fedbourse.device.deal_worker import DealWorker
from fedbourse.device.market_client import MarketClient, SignedRequest
from fedbourse.encoding.canonical import canonical, digest
from fedbourse.errors import Refused, Unreachable
from fedbourse.learning.checkpoint import Checkpoint
from fedbourse.learning.engines import LocalEngine
from fedbourse.learning.engines.flower import FlowerEngine, Seat
from fedbourse.learning.models import model_named
from fedbourse.learning.rounds import train
from fedbourse.privacy import Filter, SimulatedNoise, Terms
from fedbourse.protocol.connection import Connection
from fedbourse.protocol.keys import SigningKey
from fedbourse.protocol.messages import terms_message
from fedbourse.tasks.card import Deadlines, TaskCard
from learning.flower_nodes import BUDGETS, RECIPE, InProcessGrid, Node, ask, federation, make_device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from fedbourse.privacy.filter import Account

SEED = 7
OWNERS = len(BUDGETS)
ROUNDS = RECIPE.rounds
MODEL = model_named(RECIPE.model, features=RECIPE.features, classes=RECIPE.classes)
ALL_TERMS = [RECIPE.terms(budget) for budget in BUDGETS]
ZERO = np.zeros(MODEL.dimension).astype("<f8").tobytes()
TOTAL = 100.0
"""The total that a scripted market announced."""
OTHER = np.full(MODEL.dimension, 0.25).astype("<f8").tobytes()


class ServerDied(Exception):
    """Whoever trains was killed after a round."""


@dataclass(frozen=True)
class Outcome:
    """What a training left behind."""

    model: np.ndarray
    delivered: list[int]
    spent: list[float]


class Transport(ABC):
    """Three devices, each with its spend on disk, and somebody who asks them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.read: list[int] = []
        """Whose records were read, in order."""

    @abstractmethod
    def train(
        self,
        *,
        away_from: Mapping[int, int] | None = None,
        device_dies_after: Mapping[int, int] | None = None,
        server_dies_after: int | None = None,
    ) -> Outcome:
        """Train to the end; some are away from a round on, some are killed after a round."""

    @abstractmethod
    def ask(
        self,
        seat: int,
        *,
        round: int,
        model: bytes = ZERO,
        sigma: float | None = None,
        lost: bool = False,
    ) -> bytes:
        """Ask one device, which is opened anew as after a kill; return its update, or raise.

        The asker may say what sigma it would like; its word that the update came may be ``lost``.
        """

    @abstractmethod
    def offer_other_terms(self, seat: int) -> None:
        """Ask under terms with twice the budget; raise what the device says."""

    @abstractmethod
    def spend_file(self, seat: int) -> Path:
        """Return where a device keeps its spend."""

    def charged(self, seat: int) -> int:
        """Return how many rounds a device has paid for in privacy."""
        if not self.spend_file(seat).exists():
            return 0
        return sum(account.charged for account in self._accounts(seat))

    def spent(self) -> list[float]:
        """Return what each device has spent, in rho."""
        return [float(sum(each.spent for each in self._accounts(i))) for i in range(OWNERS)]

    def _accounts(self, seat: int) -> list[Account]:
        with closing(SpendStore(self.spend_file(seat), read_only=True)) as store:
            return Filter(store, lifetime_cap=1.0).accounts()


class _Watched:
    """A model that notes when it looks at records."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(MODEL, name)

    def clipped_means(self, parameters: np.ndarray, owners: Any, *, clip: float) -> np.ndarray:
        self._transport.read.append(-1)
        return MODEL.clipped_means(parameters, owners, clip=clip)


class LocalTransport(Transport):
    """All devices in one process; each has a file of its own."""

    def spend_file(self, seat: int) -> Path:
        return self.folder / f"spend-{seat}.db"

    def train(self, *, away_from=None, device_dies_after=None, server_dies_after=None) -> Outcome:
        away = away_from or {}

        def available(number: int, owners: int) -> np.ndarray:
            return np.array([number < away.get(i, ROUNDS) for i in range(owners)])

        file = self.folder / "checkpoint.npz"
        # In one process they all die together.
        deaths = {*(device_dies_after or {}).values(), server_dies_after} - {None}
        run = _trained(lambda stack: self._engine(stack, available=available), file, deaths)
        return Outcome(run.parameters, run.delivered.tolist(), self.spent())

    def ask(
        self,
        seat: int,
        *,
        round: int,
        model: bytes = ZERO,
        sigma: float | None = None,
        lost: bool = False,
    ) -> bytes:
        def available(number: int, owners: int) -> np.ndarray:
            return np.arange(owners) == seat

        with ExitStack() as stack:
            engine = self._engine(stack, available=available)
            updates = engine.ask(round, np.frombuffer(model, dtype="<f8").astype(float))
        if seat in updates.refused:
            raise updates.refused[seat]
        return updates.vectors[0].tobytes()

    def offer_other_terms(self, seat: int) -> None:
        changed = [replace(t, rho=2 * t.rho) if i == seat else t for i, t in enumerate(ALL_TERMS)]
        with ExitStack() as stack:
            self._engine(stack, terms=changed)

    def _engine(self, stack: ExitStack, *, terms=ALL_TERMS, available=None) -> LocalEngine:
        stores = [
            stack.enter_context(closing(SpendStore(self.spend_file(i)))) for i in range(OWNERS)
        ]
        guards = [Filter(store, lifetime_cap=100.0) for store in stores]
        for guard, agreed in zip(guards, ALL_TERMS, strict=True):
            guard.agree(agreed)
        noise = SimulatedNoise(terms, seed=SEED)
        return LocalEngine(
            _Watched(self), federation(), terms, noise, filters=guards, available=available
        )


class FlowerTransport(Transport):
    """Flower's ClientApp behind a Grid, with our engine on the server's side."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for seat in range(OWNERS):
            make_device(self._path(seat), seat, study_seed=SEED)

    def _path(self, seat: int) -> Path:
        return self.folder / f"device-{seat}"

    def spend_file(self, seat: int) -> Path:
        return self._path(seat) / "spend.db"

    def train(self, *, away_from=None, device_dies_after=None, server_dies_after=None) -> Outcome:
        away = away_from or {}

        def node(seat: int) -> Node:
            # A device that is killed needs nothing here: every message opens it anew from its disk.
            def twist(request, reply):
                round_request = request.content.get("round-request")
                gone = round_request is not None and round_request["round"] >= away.get(
                    seat, ROUNDS
                )
                return None if gone else reply

            return Node(self._path(seat), twist=twist)

        deaths = {server_dies_after} - {None}

        def engine(stack: ExitStack) -> FlowerEngine:
            grid = InProcessGrid({seat + 1: node(seat) for seat in range(OWNERS)})
            seats = [Seat(f"owner-{i}", terms) for i, terms in enumerate(ALL_TERMS)]
            return FlowerEngine(grid, seats, clock=grid.clock, sleep=grid.sleep)

        run = _trained(engine, self.folder / "checkpoint.npz", deaths)
        return Outcome(run.parameters, run.delivered.tolist(), self.spent())

    def ask(
        self,
        seat: int,
        *,
        round: int,
        model: bytes = ZERO,
        sigma: float | None = None,
        lost: bool = False,
    ) -> bytes:
        terms = ALL_TERMS[seat]
        items = {"task": terms.task, "terms": terms.digest, "round": round, "model": model}
        return self._send(seat, items | ({} if sigma is None else {"sigma": sigma}))

    def offer_other_terms(self, seat: int) -> None:
        changed = RECIPE.terms(2 * BUDGETS[seat])
        items = {"task": changed.task, "terms": changed.digest, "round": 0, "model": ZERO}
        self._send(seat, items)

    def _send(self, seat: int, items: dict[str, Any]) -> bytes:
        reply = ask(self._path(seat), **items)
        if "reason" in reply:
            raise Refused(str(reply["reason"]), str(reply["sentence"]))
        return bytes(reply["vector"])


@dataclass(frozen=True)
class OneSeat:
    """One owner's part of noise that is drawn for all."""

    noise: SimulatedNoise
    seat: int

    @property
    def scales(self) -> np.ndarray:
        return self.noise.scales[[self.seat]]

    @property
    def costs(self) -> np.ndarray:
        return self.noise.costs[[self.seat]]

    def release(self, updates: np.ndarray, owners: np.ndarray, number: int) -> np.ndarray:
        return self.noise.release(updates, np.array([self.seat]), number)


def card(**items: Any) -> TaskCard:
    """Return the card of the same training."""
    return TaskCard(
        **{
            "goal": "tell points apart",
            "data": RECIPE.data,
            "loss": RECIPE.model,
            "query": "gradient",
            "compensation": "proportional",
            "reward": 10.0,
            "scaling": "none",
            "model": RECIPE.model,
            "features": RECIPE.features,
            "classes": RECIPE.classes,
            "dimension": MODEL.dimension,
            "step_size": RECIPE.step_size,
            "rounds": ROUNDS,
            "samples": RECIPE.samples,
            "clip": RECIPE.clip,
            "aggregation": RECIPE.aggregation,
            "vesting": "by-round",
            **items,
        }
    )


class MarketTransport(Transport):
    """The market's own devices: agents, and a served market."""

    def spend_file(self, seat: int) -> Path:
        return self.folder / f"device-{seat}" / "spend.db"

    def _agent(self, seat: int, **options: Any) -> Agent:
        part = federation().parts[seat]

        def data(card: TaskCard) -> Any:
            self.read.append(seat)
            return part.features, part.labels

        options |= {
            "data": data,
            "noise": lambda terms: OneSeat(SimulatedNoise(ALL_TERMS, seed=SEED), seat),
        }
        path = self.folder / f"device-{seat}"
        if not path.exists():
            settings = DeviceSettings(value=1e-6, lifetime_cap=100.0)
            return Agent.create(path, settings, **options)
        return Agent(path, **options)

    def train(self, *, away_from=None, device_dies_after=None, server_dies_after=None) -> Outcome:
        deadlines = Deadlines(
            tick_s=600.0, terms_s=600.0, review_s=0.0, round_s=5.0 if away_from else 600.0
        )
        served = _Served(self.folder / "market", card(deadlines=deadlines))
        with closing(served):
            for seat in range(OWNERS):
                with self._agent(seat) as agent:
                    agent.enrol(served.url, served.enrolment(f"owner:{seat}"))
                    agent.join(served.task, BiddingStrategy(budget=BUDGETS[seat]))
            served.announce()
            devices = [
                threading.Thread(
                    target=self._follow,
                    args=(seat, (away_from or {}).get(seat), (device_dies_after or {}).get(seat)),
                )
                for seat in range(OWNERS)
            ]
            for device in devices:
                device.start()
            if server_dies_after is not None:
                served.dies_after(server_dies_after)
            for device in devices:
                device.join()
            model = served.model()
        delivered = []
        for seat in range(OWNERS):
            with self._agent(seat) as agent:
                (entry,) = agent.ledger().entries
                delivered.append(entry.receipts)
        return Outcome(model, delivered, self.spent())

    def _follow(self, seat: int, away_from: int | None, dies_after: int | None) -> None:
        stops = {None if away_from is None else away_from - 1, dies_after} - {None}
        while True:
            stopped: list[int] = []

            def heard(event: dict[str, Any], stopped: list[int] = stopped) -> None:
                if event["event"] == "delivered" and event["round"] in stops:
                    stops.discard(event["round"])
                    stopped.append(event["round"])
                    agent.stop.set()

            with self._agent(seat, on_event=heard) as agent:
                agent.run()
            if not stopped or (away_from is not None and away_from - 1 in stopped):
                return

    def ask(
        self,
        seat: int,
        *,
        round: int,
        model: bytes = ZERO,
        sigma: float | None = None,
        lost: bool = False,
    ) -> bytes:
        with self._agent(seat) as agent:
            market = _Scripted(agent, seat)
            market.lost = lost
            market.round_requests.append(
                SignedRequest(round, model, "0" * 64, time.monotonic() + 60)
            )
            self.read.clear()  # joining may read
            market.follow()
            if market.updates:
                return market.updates[0]
            refusal = agent.ledger().refusals[-1]
            raise Refused(refusal.reason, refusal.sentence)

    def offer_other_terms(self, seat: int) -> None:
        with self._agent(seat) as agent:
            market = _Scripted(agent, seat)
            market.state, market.budget = "settled", 2 * BUDGETS[seat]
            agent.deals.change(market.deal, state="joined", terms=None)
            market.deal = replace(market.deal, state="joined", terms=None)
            market.follow()
            assert market.decisions == [False]
            refusal = agent.ledger().refusals[-1]
            raise Refused(refusal.reason, refusal.sentence)


class _Scripted(MarketClient):
    """A market that asks what a test tells it to, without a network."""

    _key = SigningKey.generate()

    def __init__(self, agent: Agent, seat: int) -> None:
        self._market_key = self._key
        market = KnownMarket(self._key.public, "http://127.0.0.1:1", "device", f"owner:{seat}")
        super().__init__(market, agent.folder.key)
        self._agent = agent
        self.round_requests: list[SignedRequest] = []
        self.updates: list[bytes] = []
        self.decisions: list[bool] = []
        self.state, self.budget, self.lost = "training", BUDGETS[seat], False
        deal = Deal(
            market=market.key,
            task="task",
            owner=market.owner,
            buyer="buyer:acme",
            card_document=card().document,
            strategy=BiddingStrategy(budget=BUDGETS[seat]),
            cap=100.0,
            replies=(SentReply("0" * 64, 0, TOTAL, 10**6, BUDGETS[seat]),),
        )
        stored = agent.deals.deal(deal.name)
        if stored is None:
            terms = {"terms": self._terms(deal), "market_signature": "", "signature": ""}
            agent.guard.agree(deal.privacy(terms["terms"]))
            stored = agent.deals.put(replace(deal, state="signed", terms=terms))
        self.deal = stored

    def _terms(self, deal: Deal) -> dict[str, Any]:
        return terms_message(
            deal.card,
            task=deal.task,
            owner=deal.owner,
            tick=0,
            total_budget=TOTAL,
            budget=self.budget,
            payment_micro=10**6,
            allocation="0" * 64,
        )

    def follow(self) -> None:
        """Let the agent follow until there is nothing more to ask."""
        DealWorker(self.deal, self, self._agent._owner).until("ended")
        self.close()

    def task(self, task: str, *, seen: int | None = None, wait_s: float = 0.0) -> dict[str, Any]:
        if self.state == "training" and not self.round_requests:
            self._agent.stop.set()
        return {
            "events": 1,
            "state": self.state,
            "card": self.deal.card.digest,
            "last_hash": self.deal.last_hash,
        }

    def participation(self, task: str) -> dict[str, Any]:
        terms = self._terms(self.deal)
        signature = self._market_key.sign(canonical(terms))
        return {
            "allocation": {
                "state": "signed" if self.state == "training" else "offered",
                "delivered": 0,
            },
            "terms": {"terms": terms, "digest": digest(terms), "market_signature": signature},
            "replies": [],
            "exit": None,
            "receipt": None,
            "sequence": 0,
        }

    def decide(self, task, *, accept, terms_digest, signature=None) -> None:
        self.decisions.append(accept)

    def request(self, deal: Deal, *, after: int, wait_s: float) -> SignedRequest | None:
        return self.round_requests.pop(0) if self.round_requests else None

    def update(
        self, deal: Deal, request: SignedRequest, vector: bytes, *, delivered: Any, released: int
    ) -> dict[str, Any]:
        self.updates.append(vector)
        if self.lost:
            self._agent.stop.set()
            raise Unreachable("the receipt was lost")
        return {"receipt": {"round": request.round, "delivered": delivered[0], **_UNPAID}}


_UNPAID = {"earned_micro": 0, "held_micro": 0}


@dataclass
class _Served:
    """A market in a process of its own, with one task."""

    folder: Path
    card: TaskCard
    _stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self._start(0)
        self._operator = self._market.operator.read_text().strip()
        with self._connection(self._operator) as operator:
            body = {"party": "buyer:acme", "scopes": ["buyer"]}
            self._buyer = operator.post("/v1/tokens", body)["token"]
            line = {"reference": "contract", "party": "buyer:acme", "credits": "10"}
            (self.folder / "payments" / "received.jsonl").write_text(json.dumps(line) + "\n")
            operator.post("/v1/deposits", {"reference": "contract"})
        with self._connection(self._buyer) as buyer:
            self.task = buyer.post("/v1/tasks", self.card.document)["task"]
            buyer.post(f"/v1/tasks/{self.task}/open", {})

    def _start(self, port: int) -> None:
        self._market = self._stack.enter_context(running_market(self.folder, port=port))
        self.url = self._market.url

    def _connection(self, token: str) -> Connection:
        return Connection(self.url, token=token)

    def close(self) -> None:
        self._stack.close()

    def enrolment(self, owner: str) -> str:
        with self._connection(self._operator) as operator:
            return operator.post("/v1/enrolment-tokens", {"owner": owner})["token"]

    def announce(self) -> None:
        with self._connection(self._buyer) as buyer:
            buyer.post(f"/v1/tasks/{self.task}/announce", {})

    def dies_after(self, round: int) -> None:
        """Kill -9 once a round has closed, and start again at the same address."""
        with self._connection(self._buyer) as buyer:
            for event in buyer.events(f"/v1/tasks/{self.task}/stream"):
                if event["kind"] == "round" and event["body"]["round"] == round:
                    break
        self._market.process.kill()
        self._market.process.wait()
        self._start(int(self.url.rpartition(":")[2]))

    def model(self) -> np.ndarray:
        with self._connection(self._buyer) as buyer:
            task = buyer.get(f"/v1/tasks/{self.task}")
            assert task["state"] == "completed", task
            return np.frombuffer(buyer.get_bytes(f"/v1/tasks/{self.task}/model"), dtype="<f8")


def _trained(engine: Callable[[ExitStack], Any], file: Path, deaths: set[int]) -> Any:
    """Train to the end, with a fresh engine after each death."""

    def on_round(seen: Any, updates: Any) -> None:
        if seen.number in deaths:
            deaths.discard(seen.number)
            raise ServerDied

    while True:
        with ExitStack() as stack, suppress(ServerDied):
            return train(
                engine(stack),
                MODEL,
                federation().records,
                step_size=RECIPE.step_size,
                rounds=ROUNDS,
                aggregation=RECIPE.aggregation,
                checkpoint=Checkpoint(file, RECIPE.document),
                on_round=on_round,
            )


TRANSPORTS: dict[str, Callable[[Path], Transport]] = {
    "local": LocalTransport,
    "market": MarketTransport,
    "flower": FlowerTransport,
}
__all__ = ["OTHER", "OWNERS", "ROUNDS", "TRANSPORTS", "ZERO", "Outcome", "Terms", "Transport"]
