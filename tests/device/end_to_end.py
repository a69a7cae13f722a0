"""The whole way of an owner's file: through a market, or through Flower, with all that is said.

Two runs from the same start differ in nothing but the data: keys, clocks, ids and noise are fixed.
So whatever differs in what a device says comes from its records.
"""

from __future__ import annotations

import json
import random
import secrets
import shutil
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import httpx2
import numpy as np

from fedbourse.device import Agent, DeviceFolder, DeviceSettings, FileData, KnownMarket
from fedbourse.device.data import device_records
from fedbourse.errors import FedbourseError
from fedbourse.flower.consent import agree_to
from fedbourse.flower.device import FlowerDevice
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.parties import EnrolledDevice
from fedbourse.market.records import State
from fedbourse.privacy.noise import GridGaussian, charged_sensitivity
from fedbourse.protocol.connection import Connection
from fedbourse.protocol.keys import SigningKey, key_id
from fedbourse.storage import SqlStore
from fedbourse.testing.databases import MEMORY
from fedbourse.testing.trading import BUYER, KEY, Owner, Trading
from fedbourse.web.app import create_app
from learning.flower_nodes import ask
from web.clients import TestClient
from web.fixtures import UNHURRIED, Bank

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fedbourse.device import DataSource
    from fedbourse.flower.recipe import Recipe
    from fedbourse.market.records import Task
    from fedbourse.privacy import Terms
    from fedbourse.tasks.card import TaskCard

URL, ANN = "http://127.0.0.1:1", "owner:ann"
RIVAL = Owner("owner:rival", 1.1)
FLOWER_BUDGET = 0.5
STEP_MS, MESSAGES_MAX = 20_000, 500
"""How long each request takes on the market's clock, and how many are too many."""


class Distinguished(AssertionError):
    """Somebody outside could tell two owners apart by one record, beyond what was charged."""


@dataclass(frozen=True)
class Observed:
    """All that anybody outside sees of a device in one task."""

    messages: tuple[object, ...]
    """What it said, in order; in place of an update stands that there was one."""
    updates: tuple[np.ndarray, ...]
    charged: float
    """How far one record may move an update: what the noise is sized for, rounding included."""


def check_alike(here: Observed, there: Observed) -> None:
    """Refuse two runs that differ in anything but what the noise covers."""
    for own, other in zip(here.messages, there.messages, strict=False):
        if own != other:
            raise Distinguished(f"it says {own!r:.300} here, and {other!r:.300} there")
    if len(here.messages) != len(there.messages):
        raise Distinguished(
            f"it says {len(here.messages)} things here, {len(there.messages)} there"
        )
    for number, (own, other) in enumerate(zip(here.updates, there.updates, strict=True)):
        distance = float(np.linalg.norm(own - other))
        if not distance <= here.charged == there.charged:
            raise Distinguished(
                f"update {number} moves by {distance:g} of {here.charged:g} charged"
            )


class _FixedGaussian(GridGaussian):
    """A device's grid and scale, with noise that only depends on the round."""

    round_number = 0

    def release(self, update: np.ndarray) -> np.ndarray:
        """Round to the grid, and add this round's noise."""
        steps = self.scale / self.grid
        noise = np.random.default_rng([7, self.round_number]).standard_normal(update.shape) * steps
        return (self.steps(update) + np.rint(noise)) * self.grid


class FixedNoise:
    """Noise as devices draw it, on its grid and of its size, but always the same."""

    def __init__(self, terms: Sequence[Terms]) -> None:
        """Prepare one owner's."""
        (self.terms,) = terms
        self._gaussian = _FixedGaussian(self.terms)
        self.scales = np.array([self._gaussian.scale])
        self.costs = np.array([self._gaussian.cost])

    @property
    def charged(self) -> float:
        """Return the distance that the noise is sized for."""
        return charged_sensitivity(self.terms, self._gaussian.grid)

    def release(self, updates: np.ndarray, owners: np.ndarray, number: int) -> np.ndarray:
        """Return the one owner's update with the noise of round ``number``."""
        self._gaussian.round_number = number
        return self._gaussian.release(updates[0])[np.newaxis]


@dataclass(frozen=True)
class Start:
    """What every run begins with: a device's folder, and an empty market's database."""

    device: Path
    database: Path

    @classmethod
    def make(cls, folder: Path, database: Path) -> Start:
        """Make the device."""
        settings = DeviceSettings(value=1.0, lifetime_cap=50.0)
        DeviceFolder.create(folder / "device", settings)
        return cls(folder / "device", database)

    def valued(self, value: float, folder: Path) -> Start:
        """Return the same start, key included, for an owner with another value of privacy."""
        shutil.copytree(self.device, folder / "device")
        settings = folder / "device" / "device.json"
        document = json.loads(settings.read_text())
        settings.write_text(json.dumps(document | {"value": value}))
        return Start(folder / "device", self.database)

    @contextmanager
    def copy(self) -> Iterator[Start]:
        """Copy both, for one run."""
        scratched = tempfile.TemporaryDirectory(prefix="fb-way-", dir=MEMORY)
        with scratched as scratch, fixed_randomness():
            device, database = Path(scratch, "device"), Path(scratch, "market.db")
            shutil.copytree(self.device, device)
            shutil.copy(self.database, database)
            yield Start(device, database)


@contextmanager
def fixed_randomness() -> Iterator[None]:
    """Let ids, salts and nonces be the same in every run."""
    draw = random.Random(1)
    with ExitStack() as stack:
        for name, made in {
            "token_hex": lambda size=32: draw.randbytes(size).hex(),
            "token_urlsafe": lambda size=32: draw.randbytes(size).hex(),
            "randbelow": draw.randrange,
        }.items():
            stack.enter_context(mock.patch.object(secrets, name, made))
        yield


class InProcess(httpx2.BaseTransport):
    """Carries a device's requests to a market in this process, and writes down what they say.

    Before each request some time passes, in which other owners do what they would have done.
    """

    def __init__(
        self, client: TestClient, trading: Trading, task: Task, rivals: Sequence[Owner]
    ) -> None:
        """Start with nothing said."""
        self._client, self._trading, self._task = client, trading, task
        self._rivals = rivals
        self._done: set[tuple[State, int | None]] = set()
        self.messages: list[object] = []
        self.updates: list[np.ndarray] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Respond to one request as the market does."""
        assert len(self.messages) < MESSAGES_MAX, "the device talks without end"
        self._trading.time_ms += STEP_MS
        self.others_act()
        body, target = request.read(), request.url.raw_path.decode()
        if target.endswith("/update"):
            self.updates.append(np.frombuffer(body, "<f8"))
            self.messages.append((request.method, target, f"an update of {len(body)} bytes"))
        else:
            self.messages.append((request.method, target, body))
        reply = self._client.request(
            request.method, target, headers=list(request.headers.items()), content=body
        )
        kept = {k: v for k, v in reply.headers.items() if k != "content-length"}
        return httpx2.Response(reply.status_code, headers=kept, content=reply.content)

    def others_act(self) -> None:
        """Let the other owners plan, sign and update, each once, and the market act."""
        task = self._trading.task(self._task.id)
        turn = {State.ANNOUNCED: task.tick, State.SETTLED: 0, State.TRAINING: task.round}
        if task.state in turn and (step := (task.state, turn[task.state])) not in self._done:
            self._done.add(step)
            chosen = {each.owner for each in self._trading.allocations(task.id)}
            for rival in self._rivals:
                if task.state is State.ANNOUNCED:
                    self._trading.plan(rival, task)
                elif rival.name in chosen and task.state is State.SETTLED:
                    self._trading.decide(rival, task.id)
                elif rival.name in chosen:
                    self._trading.update(rival, task)
        self._trading.advance()


def through_the_market(
    start: Start, card: TaskCard, source: DataSource, *, rivals: Sequence[Owner] = (RIVAL,)
) -> Observed:
    """Join a task, plan, sign and send every update; return all that was said."""
    noise: list[FixedNoise] = []

    def fixed(terms: Sequence[Terms]) -> FixedNoise:
        noise.append(FixedNoise(terms))
        return noise[-1]

    with start.copy() as own, SqlStore(f"sqlite:///{own.database}") as store:
        trading = Trading(store)
        key = DeviceFolder(own.device).key
        task = _opened(trading, card, key, rivals)
        app = create_app(trading.market, store, Bank(), UNHURRIED)
        with TestClient(app, base_url=URL) as client:
            line = InProcess(client, trading, task, rivals)
            connection = partial(Connection, transport=line, now_ms=lambda: trading.time_ms)
            with (
                mock.patch("fedbourse.device.market_client.Connection", connection),
                mock.patch("fedbourse.device.deal_worker._WAIT_S", 0.0),
                Agent(own.device, data=source, noise=fixed) as agent,
            ):
                agent.deals.put_market(KnownMarket(KEY.public, URL, key_id(key.public), ANN))
                try:
                    deal = agent.join(task.id)
                    trading.do(buyer_commands.announce, BUYER, task.id)
                    line.messages.append(agent.follow(deal).state)
                except FedbourseError as error:
                    line.messages.append(type(error).__name__)
                line.messages.append(agent.ledger().spent)
    return Observed(tuple(line.messages), tuple(line.updates), noise[-1].charged if noise else 0.0)


def _opened(trading: Trading, card: TaskCard, key: SigningKey, rivals: Sequence[Owner]) -> Task:
    """Open a task that the other owners are interested in, and know all devices."""
    trading.fund(1000 * 10**6)
    with trading.store.begin() as tx:
        for owner, own in ((ANN, key), *((rival.name, rival.key) for rival in rivals)):
            tx.put_device(EnrolledDevice(key_id(own.public), owner, own.public, trading.time_ms))
    task = trading.do(buyer_commands.create, BUYER, card)
    task = trading.do(buyer_commands.open_task, BUYER, task.id)
    for rival in rivals:
        trading.do(
            owner_commands.register_interest,
            rival.caller,
            task.id,
            value=None,
            previous=task.card.digest,
        )
    return task


def through_flower(start: Start, recipe: Recipe, source: DataSource) -> Observed:
    """Agree to a recipe, and send every update as Flower's ClientApp; return all that was said."""
    messages: list[object] = []
    updates: list[np.ndarray] = []
    terms = recipe.terms(FLOWER_BUDGET)
    noise = FixedNoise([terms])
    fixed = mock.patch.object(FlowerDevice, "_noise", return_value=(noise, 0))
    with start.copy() as own, fixed:
        try:
            messages.append(_agreed(own, recipe, source))
        except FedbourseError as error:
            messages.append(type(error).__name__)
        model = recipe.build().start(seed=3) + 0.25
        for number in range(recipe.rounds):
            round_request = {"task": recipe.task, "terms": terms.digest, "round": number}
            reply: dict[str, Any] = dict(ask(own.device, **round_request, model=model.tobytes()))
            if "vector" in reply:
                updates.append(np.frombuffer(reply.pop("vector"), "<f8"))
            messages.append(reply)
        messages.append([account.spent for account in FlowerDevice(own.device).accounts()])
    return Observed(tuple(messages), tuple(updates), noise.charged)


def _agreed(own: Start, recipe: Recipe, source: DataSource) -> object:
    """Agree as ``fedbourse train agree`` does with a file, or as an application would."""
    if isinstance(source, FileData):
        file = own.device.with_name("recipe.json")
        file.write_text(json.dumps(recipe.document))
        return asdict(agree_to(file, own.device, "ann", FLOWER_BUDGET, data=source.name).member)
    device = FlowerDevice(own.device)
    return device.agree(
        recipe,
        FLOWER_BUDGET,
        lambda: device_records(recipe, source, secret=device.folder.records_secret),
        owner="ann",
    )
