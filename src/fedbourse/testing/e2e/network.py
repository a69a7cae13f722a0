"""A market, a buyer and devices as processes of their own; what must hold of both sides' records.

Devices that end by SIGKILL are started again, and a market that was struck as well.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections import defaultdict
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbourse.cli.verify import task_records
from fedbourse.device import Agent
from fedbourse.market.audit import verify_task
from fedbourse.privacy.terms import Terms
from fedbourse.testing.e2e.device_process import LOG, STEPS, WIRE, Life
from fedbourse.testing.e2e.forks import Forks, read_lines
from fedbourse.testing.e2e.invariants import InvariantBroken, Records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fedbourse.protocol.connection import Connection
    from fedbourse.testing.e2e.supervised import Supervised

from fedbourse.testing.small_card import SMALL_CARD

BUYER = "buyer:acme"
_SOON_S = 120
CARD = SMALL_CARD | {
    "rounds": 2,
    "samples": 50,
    "max_rho": 100.0,
    "deadlines": {
        "interest_s": 3600.0,
        "tick_s": 600.0,
        "terms_s": 600.0,
        "review_s": 0.0,
        "round_s": 600.0,
    },
}


@dataclass
class Supervisee:
    """One device, and its process where it has one."""

    life: Life
    owner: str
    pid: int | None = None
    starts: int = 0
    tasks_at_start: tuple[str, ...] = ()
    """The tasks that it was started with."""
    done: bool = False

    @property
    def path(self) -> Path:
        """Where its folder, its wire and its log lie."""
        return Path(self.life.folder)


class Network:
    """A trade between processes that are struck, and started again."""

    def __init__(
        self,
        market: Supervised,
        forks: Forks,
        *,
        owners: int,
        decliners: int = 0,
        lives: Mapping[int, dict[str, Any]] | None = None,
        **life: Any,
    ) -> None:
        """Let everybody in, decliners last; nothing is traded yet.

        ``lives`` says what is special about a seat's device.
        """
        self.market, self._forks, self._life, self._lives = market, forks, life, lives or {}
        self.tasks: list[str] = []
        self.checks = 0
        secret = (market.folder / "operator.token").read_text().strip()
        self._connections: list[Connection] = []
        self.operator = self._connected(secret)
        made = self._patiently("post", "/v1/tokens", {"party": BUYER, "scopes": ["buyer"]})
        self.buyer = self._connected(made["token"])
        line = {"reference": "bank-1", "party": BUYER, "credits": "1000"}
        (market.folder / "payments" / "received.jsonl").write_text(json.dumps(line) + "\n")
        self._patiently("post", "/v1/deposits", {"reference": "bank-1"}, by=self.buyer)
        self.devices = [
            self._new_device(seat, declines=seat >= owners) for seat in range(owners + decliners)
        ]

    def _connected(self, token: str) -> Connection:
        self._connections.append(self.market.connection(token=token))
        return self._connections[-1]

    def close(self) -> None:
        """End all devices."""
        for device in self.devices:
            if device.pid is not None:
                self._forks.ask("kill", pid=device.pid)
        for connection in self._connections:
            connection.close()

    def _patiently(self, how: str, path: str, *body: Any, by: Connection | None = None) -> Any:
        ask = getattr(by or self.operator, how)
        key = {} if how == "get" else {"idempotency_key": os.urandom(12).hex()}
        return self.market.patiently(lambda: ask(path, *body, **key))

    def _new_device(self, seat: int, *, declines: bool) -> Supervisee:
        owner = f"owner:o{seat}"
        made = self._patiently("post", "/v1/enrolment-tokens", {"owner": owner})
        folder = self.market.folder.parent / f"device-{seat}"
        folder.mkdir()
        tasks = tuple(self.tasks)
        life = Life(
            str(folder),
            seat,
            self.market.url,
            made["token"],
            tasks,
            declines=declines,
            **self._life | self._lives.get(seat, {}),
        )
        return Supervisee(life, owner)

    def publish(self, *, reference: bytes | None = None, **card: Any) -> str:
        """Publish a task that all devices will join at their next start."""
        task = self._patiently("post", "/v1/tasks", CARD | card, by=self.buyer)["task"]
        if reference is not None:
            self._patiently("put_bytes", f"/v1/tasks/{task}/reference", reference, by=self.buyer)
        self._patiently("post", f"/v1/tasks/{task}/open", {}, by=self.buyer)
        self.tasks.append(task)
        for device in self.devices:
            device.life, device.done = replace(device.life, tasks=tuple(self.tasks)), False
        return str(task)

    def task(self, task: str) -> dict[str, Any]:
        """Return a task as it stands."""
        found: dict[str, Any] = self._patiently("get", f"/v1/tasks/{task}")
        return found

    def announce(self, task: str) -> None:
        """Announce a task."""
        self._patiently("post", f"/v1/tasks/{task}/announce", {}, by=self.buyer)

    # processes

    def kill(self, device: Supervisee) -> bool:
        """End a device at this moment; say whether it still lived."""
        if device.pid is None:
            return False
        code = self._forks.ask("kill", pid=device.pid)
        device.pid = None
        self._ended(device, code)
        return bool(code == -signal.SIGKILL)

    def tend(self) -> None:
        """Start again whoever was struck; then all invariants must hold."""
        for device in self.devices:
            if device.pid is not None:
                code = self._forks.ask("poll", pid=device.pid)
                if code is None:
                    continue
                device.pid = None
                self._ended(device, code)
                self.check()
            if not device.done:
                device.starts, device.tasks_at_start = device.starts + 1, device.life.tasks
                device.pid = self._forks.ask("start", life=asdict(device.life))

    def _ended(self, device: Supervisee, code: int) -> None:
        device.done = code == 0 and device.tasks_at_start == device.life.tasks
        log = (device.path / LOG).read_text()[-3000:] if (device.path / LOG).exists() else ""
        assert code in (0, -signal.SIGKILL), f"{device.owner} ended by itself, with {code}: {log}"

    def until(self, what: Any) -> None:
        """Tend everything until something has happened."""
        end = time.monotonic() + _SOON_S
        while not what():
            assert time.monotonic() < end, "it takes too long"
            starts = self.market.starts
            self.market.mend()
            if self.market.starts > starts:
                self.check()
            self.tend()

    def run(self, *tasks: str) -> None:
        """Carry tasks out, from the first interest to their end on both sides."""
        everybody = len(self.devices)
        for task in tasks:
            self.until(lambda task=task: (self.task(task)["interested"] or 0) == everybody)
            self.announce(task)
        self.until(lambda: all(device.done for device in self.devices))
        assert {self.task(task)["state"] for task in tasks} == {"completed"}

    # what must hold

    def check(self) -> Records:
        """Compare both sides' records with the invariants and with each other."""
        # Devices go on meanwhile: what they hold by now, the market has; what it holds later, they
        # had promised before.
        held = [_held(device) for device in self.devices]
        records = self.market.check()
        broken = [
            violation
            for device, before in zip(self.devices, held, strict=True)
            for violation in (
                *_own_invariants(device, before),
                *_both_sides(device, before, records),
            )
        ]
        if broken:
            raise InvariantBroken("; ".join(broken[:5]))
        self.checks += 1
        return records

    def verified(self) -> list[Any]:
        """Return all that any side finds wrong with a task."""
        wrong: list[Any] = []
        for task in self.tasks:
            seen = self.market.patiently(partial(task_records, self.operator, task))
            wrong += [check for check in verify_task(**seen) if check.passed is False]
            for device in self.devices:
                with Agent(device.path / "device", data=lambda card: ([], [])) as agent:
                    checks = self.market.patiently(partial(agent.verify, task))
                wrong += [(device.owner, check) for check in checks if check.passed is False]
        return wrong

    def strikes(self) -> set[tuple[int, str, str]]:
        """Return what was struck: seat, step and place."""
        return {
            (device.life.seat, line["step"], line["place"])
            for device in self.devices
            for line in read_lines(device.path / STEPS)
        }


@dataclass(frozen=True)
class Sold:
    """One account of a device with its filter."""

    terms: Terms
    charged: int
    closed: bool


@dataclass(frozen=True)
class Held:
    """A device's records at one moment, read past the device."""

    sent: dict[tuple[str, int], set[str]]
    """The hashes of all updates that left, by task and round."""
    receipts: dict[tuple[str, int], Any]
    """Every receipt that came."""
    accounts: dict[str, list[Sold]]
    """What was sold to each task: several times where the price was discovered again."""
    delivered: dict[tuple[str, int], tuple[str, Any]]
    """The hash of every stored update, and its stored receipt."""


def _held(device: Supervisee) -> Held:
    sent: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    receipts: dict[tuple[str, int], Any] = {}
    for line in read_lines(device.path / WIRE):  # first: what left was stored before
        sent[line["task"], line["round"]].add(line["hash"])
        if line.get("receipt"):
            receipts[line["task"], line["round"]] = line["receipt"]
    return Held(sent, receipts, *_device_records(device.path / "device" / "spend.db"))


def device_accounts(device: Supervisee) -> dict[str, list[Sold]]:
    """Return what a device sold to each task, and the rounds that it charged for."""
    return _held(device).accounts


def _own_invariants(device: Supervisee, held: Held) -> Iterable[str]:
    """Return a sentence for each invariant that a device's records break."""
    for task, accounts in held.accounts.items():
        used = [account for account in accounts if account.charged]
        if len(used) > 1:
            yield f"{device.owner}: {len(used)} budgets of one task were charged"
        if sum(not account.closed for account in accounts) > 1:
            yield f"{device.owner}: two budgets of one task are reserved"
        left = sum(len(hashes) for (of, _), hashes in held.sent.items() if of == task)
        terms, charged = (used or accounts)[-1].terms, sum(each.charged for each in used)
        if charged * Fraction(terms.round_rho) > Fraction(terms.rho):
            yield f"{device.owner}: more was charged than the budget"
        if left * Fraction(terms.round_rho) > Fraction(terms.rho):
            yield f"{device.owner}: more left than the budget covers"
        if left > charged:
            yield f"{device.owner}: {left} different updates left, {charged} rounds were charged"
    for (task, number), hashes in held.sent.items():
        if task not in held.accounts:
            yield f"{device.owner}: round {number} left without a reserved budget"
        if len(hashes) > 1:
            yield f"{device.owner}: {len(hashes)} different updates left for round {number}"
        if hashes - {held.delivered.get((task, number), ("", None))[0]}:
            yield f"{device.owner}: an update left for round {number} that was not stored"


def _both_sides(device: Supervisee, held: Held, records: Records) -> Iterable[str]:
    """Return a sentence for each invariant that its and the market's records break together."""
    stored = records.by("updates", "task", "round", "owner")
    for (task, number), receipt in held.receipts.items():
        row = stored.get((task, number, device.owner))
        if row is None or json.loads(row["receipt"]) != receipt:
            yield f"{device.owner}: the receipt of round {number} was given, and is lost"
    for (task, number), (_, kept) in held.delivered.items():
        row = stored.get((task, number, device.owner))
        if kept is not None and (row is None or json.loads(row["receipt"]) != kept):
            yield f"{device.owner}: the receipt that it holds of round {number} is not the market's"
    accounts = device_accounts(device)
    for line in records.tables["allocations"]:
        if line["owner"] != device.owner or line["state"] not in ("signed", "dismissed"):
            continue
        if line["task"] not in accounts:
            yield f"{device.owner}: terms are signed without a reserved budget"
        elif accounts[line["task"]][-1].terms.rho != line["budget"]:
            yield f"{device.owner}: other terms are signed than were reserved"


def _device_records(
    file: Path,
) -> tuple[dict[str, list[Sold]], dict[tuple[str, int], tuple[str, Any]]]:
    """Read a device's accounts and updates past the device, by plain SQL."""
    if not file.exists():
        return {}, {}
    accounts: defaultdict[str, list[Sold]] = defaultdict(list)
    with closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
        if "delivered" not in tables:
            return {}, {}
        connection.execute("BEGIN")
        for account, terms, charged, closed in connection.execute(
            "SELECT task, terms, charged, closed FROM account ORDER BY rowid"
        ):
            sold = Sold(Terms(**json.loads(terms)), charged, bool(closed))
            accounts[_task_of(account)].append(sold)
        delivered = {
            (_task_of(account), number): (hash, json.loads(receipt) if receipt else None)
            for account, number, hash, receipt in connection.execute(
                "SELECT task, round, hash, receipt FROM delivered"
            )
        }
    return dict(accounts), delivered


def _task_of(account: str) -> str:
    """Return the task that an account is of; its name is market/task@terms."""
    return account.partition("/")[2].partition("@")[0]
