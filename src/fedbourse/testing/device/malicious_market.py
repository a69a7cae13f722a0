"""A market with one task and one owner that keeps its word, but for one thing that a test says.

It speaks the market's API on loopback, with a key of its own. What it would say honestly passes
through a **cheat**: a function that is named after the place where it is applied. All that a device
ever told it is remembered.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fedbourse.encoding.canonical import canonical, digest
from fedbourse.protocol.keys import SigningKey, key_id
from fedbourse.protocol.messages import (
    earned,
    enrolment_message,
    market_message,
    offer_message,
    participation_message,
    receipt_message,
    round_request_message,
    task_state_message,
    terms_message,
    update_message,
)
from fedbourse.protocol.rotation import rotate
from fedbourse.tasks.card import TaskCard
from fedbourse.testing.small_card import SMALL_CARD

TASK = "0123456789abcdef01234567"
OWNER = "owner:ann"
ROUNDS = 4
PAYMENT = 2_000_003
REWARD = 3_000_000
CARD = TaskCard.of(SMALL_CARD | {"rounds": ROUNDS, "samples": 20})
SENT_MAX = 2**28
"""A device that has taken so much of an endless response would go on for ever."""
Cheat = Callable[[Any], Any]


@dataclass(frozen=True)
class Raw:
    """A response that is not a document."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    after_s: float = 0.0
    """How long the market says nothing first."""
    pieces: Callable[[], Iterator[bytes]] | None = None
    """What goes over the line instead of all this, head and all, perhaps without an end."""
    drip_s: float = 0.0
    """How long it waits before each piece."""


@dataclass(frozen=True)
class Asked:
    """A round request, before it is hashed."""

    round: int
    model: bytes
    deadline_ms: int = 2**41
    previous: str = "0" * 64


def model_of(number: int) -> bytes:
    """Return the model that the honest market asks about in a round."""
    return struct.pack("<2d", 0.1 * number, 0.5)


class MaliciousMarket:
    """Keeps the state of one trade; each request moves it on as an honest market would."""

    def __init__(self, cheats: dict[str, Cheat], *, card: TaskCard = CARD, url: str = "") -> None:
        self.cheats, self.card, self.url = cheats, card, url
        self.key, self.key_shown = SigningKey.generate(), ""
        self.rotations: list[dict[str, Any]] = []
        self.state, self.tick, self.budget = "open", 0, 0.0
        self.totals = [1.0]
        """P of each tick; the last one again and again once it runs out of them."""
        self.settled_tick: int | None = None
        self.payment, self.rounds = PAYMENT, card.rounds
        self.leaf = "1" * 64
        self.restarts = 0
        """How often the price is discovered again once the device has signed."""
        self.exit: dict[str, Any] | None = None
        self.events = 1
        self.plans: list[float] = []
        self.replies: dict[int, float] = {}
        """The budget that was replied to each tick, as far as it is remembered."""
        self.decisions: list[dict[str, Any]] = []
        self.signed = False
        """Whether the device signed the terms that are on offer."""
        self.updates: list[tuple[int, bytes]] = []
        """Every body that ever came: its round, and all of it."""
        self.paid: dict[int, dict[str, Any]] = {}
        self.request_hashes: dict[int, str] = {}
        self.keys: dict[str, list[str]] = defaultdict(list)
        """The idempotency keys of all writes, by the last part of their paths."""
        self.ticks, self.withdrawals = 1, 0
        self.requests: Counter[str] = Counter()
        """How often each thing was asked, by the last part of its path."""
        self.sent = 0
        """The bytes of pieces that the device took."""
        self._lock = threading.Lock()

    def rotate(self) -> None:
        """Sign with another key from now on, as an honest market would."""
        new = SigningKey.generate()
        self.rotations.append(asdict(rotate(self.key, new, at_ms=len(self.rotations))))
        self.key = new

    @property
    def left(self) -> dict[int, set[bytes]]:
        """The different updates that left the device, by their rounds."""
        found: dict[int, set[bytes]] = {}
        for number, body in self.updates:
            found.setdefault(number, set()).add(body)
        return found

    def _said(self, place: str, honest: Any) -> Any:
        return self.cheats.get(place, lambda same: same)(honest)

    def _signed(self, what: str, message: dict[str, Any]) -> str:
        """Return the signature of a message; cheats bend what is signed, and the key."""
        key: SigningKey = self._said(f"{what} key", self.key)
        return key.sign(canonical(self._said(f"{what} message", message)))

    # what it says

    def respond(self, method: str, path: str, request: dict[str, str], body: bytes) -> Any:
        """Return the response to a request."""
        with self._lock:
            *_, last = path.split("/")
            if re.fullmatch("[0-9a-f]{24}", last):
                last = TASK
            name = {
                TASK: "task",
                "terms": "decide",
                "update": "take",
                "round-request": "round_request",
            }.get(last, last)
            self.requests[name] += 1
            if method == "DELETE":
                name = "leave"
            return getattr(self, f"_{name.replace('enrolments', 'enrol')}")(path, request, body)

    def _market(self, _: str, request: dict[str, str], __: bytes) -> Any:
        message = market_message(host=self._host, challenge=request["challenge"])
        facts = {
            "public_key": self.key_shown or self.key.public,
            "proof": self.key.sign(canonical(message)),
            "rotations": self.rotations,
        }
        return self._said("market", facts)

    @property
    def _host(self) -> str:
        return self.url.removeprefix("http://")

    def _enrol(self, _: str, __: dict[str, str], body: bytes) -> Any:
        device = key_id(json.loads(body)["public_key"])
        message = enrolment_message(device=device, owner=OWNER, host=self._host)
        document = {
            "device": device,
            "owner": OWNER,
            "market_public_key": self.key.public,
            "signature": self.key.sign(canonical(message)),
        }
        return self._said("enrol", document)

    def _tasks(self, *_: Any) -> Any:
        return self._said("tasks", {"tasks": [self._document()], "next": None})

    def _task(self, path: str, *_: Any) -> Any:
        document = {**self._document(), "task": path.rpartition("/")[2]}
        return self._said("signed task", self._with_state(self._said("task", document)))

    def _with_state(self, said: Any) -> Any:
        """Add the signature of a task's state, whatever it is; what is not a task has none."""
        try:
            message = task_state_message(
                sequence=said["events"] - 1,
                **{
                    name: said[name]
                    for name in (
                        "task", "card", "state", "last_hash", "tick", "total_budget",
                        "reward_micro", "offer",
                    )
                },
            )  # fmt: skip
        except (KeyError, TypeError):
            return said
        return {**said, "state_signature": self._signed("state", message)}

    def total(self, tick: int) -> float:
        """Return the total that is announced at a tick."""
        return self.totals[min(tick, len(self.totals) - 1)]

    def offer(self, tick: int) -> dict[str, Any]:
        """Return the offer of a tick."""
        return offer_message(
            task=TASK,
            reward_micro=REWARD,
            method="",
            interested=1,
            tick=tick,
            total_budget=self.total(tick),
            tick_ends_ms=2**41,
            plans_end_ms=2**41,
            previous=digest(self.offer(tick - 1)) if tick else self.card.digest,
        )

    def _document(self) -> dict[str, Any]:
        announced = self.state != "open"
        return {
            "task": TASK,
            "state": self.state,
            "buyer": "buyer:mallory",
            "card": self.card.digest,
            "reward_micro": REWARD if announced else None,
            "interested": 1,
            "tick": self.tick,
            "total_budget": self.total(self.tick) if announced else None,
            "offer": digest(self.offer(self.tick)) if announced else None,
            "round": len(self.paid),
            "events": self.events,
            "last_hash": digest({"events": self.events}),
            "state_signature": "",
        }

    def _events(self, *_: Any) -> Any:
        offers = [self.offer(tick) for tick in range(self.tick + 1)] if self.state != "open" else []
        events: list[dict[str, Any]] = [
            {"kind": "ticked" if each["tick"] else "announced",
             "body": {"offer": each, "hash": digest(each)}}
            for each in offers
        ]  # fmt: skip
        if self.settled_tick is not None:
            body = {"tick": self.settled_tick, "announced_total": self.total(self.settled_tick)}
            events.append({"kind": "settled", "body": body})
        return self._said("events", {"events": events, "next": None})

    def _card(self, *_: Any) -> Any:
        return self._said("card", {"card": self.card.document, "digest": self.card.digest})

    def _interest(self, *_: Any) -> Any:
        if "interest" in self.cheats:
            return self._said("interest", {})
        self.state = "announced"
        return {}

    def _leave(self, *_: Any) -> Any:
        self.withdrawals += 1
        return self._said("leave", {"task": TASK, "owner": OWNER, "at_ms": 1})

    def _plan(self, _: str, __: Any, body: bytes) -> Any:
        if "plan" in self.cheats:
            return self._said("plan", {})
        self.budget = json.loads(body)["budget"]
        self.plans.append(self.budget)
        self.replies[self.tick] = self.budget
        if self.tick + 1 >= self.ticks:
            self.settle()
        else:
            self.tick += 1
            self.events += 1
        return {}

    def settle(self, tick: int | None = None) -> None:
        """Settle at a tick, or at the last one."""
        self.settled_tick = self.tick if tick is None else tick
        self.budget = self.replies.get(self.settled_tick, 0.0)
        self.state, self.events = "settled", self.events + 1

    def restart(self, *, ticks: int = 1) -> None:
        """Discover the price again, as if another owner had declined."""
        self.state, self.settled_tick = "announced", None
        self.tick, self.events = self.tick + 1, self.events + 1
        self.ticks = self.tick + ticks
        self.signed = False

    def terms(self) -> dict[str, Any]:
        """Return the terms that it would sign."""
        tick = 0 if self.settled_tick is None else self.settled_tick
        return terms_message(
            self.card,
            task=TASK,
            owner=OWNER,
            tick=tick,
            total_budget=self.total(tick),
            budget=self.budget,
            payment_micro=self.payment,
            allocation=self.leaf,
        )

    def _participation(self, *_: Any) -> Any:
        chosen = self.state in ("settled", "training", "completed") and self.budget > 0
        line = {
            "state": "signed" if self.signed else "offered",
            "delivered": len(self.paid),
            "held_micro": 0,
            "payment_micro": self.payment,
            "earned_micro": earned(self.payment, delivered=len(self.paid), rounds=self.rounds),
            "leaf": self.leaf,
            "signature": self.decisions[-1]["signature"] if self.decisions else None,
        }
        terms = self._said("terms", self.terms()) if chosen else None
        offered = {
            "terms": terms,
            "digest": digest(terms),
            "market_signature": self.key.sign(canonical(terms)),
        }
        document = {
            "replies": [{"tick": tick, "budget": each} for tick, each in self.replies.items()],
            "exit": self.exit,
            "allocation": line if chosen and self.exit is None else None,
            "terms": self._said("offered", offered) if chosen else None,
            "receipt": self.paid[max(self.paid)] if self.paid else None,
            "sequence": self.events - 1,
            "signature": "",
        }
        return self._said(
            "signed participation", self._with_participation(self._said("participation", document))
        )

    def _with_participation(self, said: Any) -> Any:
        """Add the signature of the owner's record; what is no record has none."""
        try:
            line, terms, gone = said["allocation"], said["terms"], said["exit"]
            message = participation_message(
                task=TASK,
                owner=OWNER,
                sequence=said["sequence"],
                allocation=line and line["state"],
                terms=terms and digest(terms["terms"]),
                exit=gone and gone["reason"],
                earned_micro=line["earned_micro"] if line else 0,
                held_micro=line["held_micro"] if line else 0,
            )
        except (KeyError, TypeError, ValueError):
            return said
        return {**said, "signature": self._signed("participation", message)}

    def _decide(self, _: str, __: Any, body: bytes) -> Any:
        self.decisions.append(json.loads(body))
        self.signed = self.decisions[-1]["accept"]
        if self.signed and self.restarts:
            self.restarts -= 1
            self.restart()
        elif self.signed:
            self.state, self.events = "training", self.events + 1
        return self._said("decide", {})

    def _round_request(self, _: str, request: dict[str, str], ___: bytes) -> Any:
        if self.state != "training":
            return problem("Conflict", 409)
        number = len(self.paid)
        round_request = self._said("round-request", Asked(number, model_of(number)))
        if isinstance(round_request, Raw):
            return round_request
        if "round-request" not in self.cheats and round_request.round <= int(request["after"]):
            time.sleep(0.02)
            return Raw(status=204)
        message = round_request_message(
            task=TASK,
            card=self.card.digest,
            round=round_request.round,
            model_hash=hashlib.sha256(round_request.model).hexdigest(),
            deadline_ms=round_request.deadline_ms,
            previous=round_request.previous,
        )
        self.request_hashes[round_request.round] = digest(message)
        headers = {
            "Fedbourse-Round": str(round_request.round),
            "Fedbourse-Request": digest(message),
            "Fedbourse-Previous": round_request.previous,
            "Fedbourse-Deadline": str(round_request.deadline_ms),
            "Fedbourse-Signature": self._signed("round-request", message),
            "Fedbourse-Left-Ms": "60000",
        }
        return self._said(
            "response", Raw(round_request.model, headers=self._said("headers", headers))
        )

    def _take(self, path: str, _: Any, body: bytes) -> Any:
        number = int(path.split("/")[-2])
        self.updates.append((number, body))
        message = update_message(
            task=TASK,
            round=number,
            owner=OWNER,
            vector_hash=hashlib.sha256(body).hexdigest(),
            request=self.request_hashes[number],
        )
        delivered = len(self.paid) + (number not in self.paid)
        receipt = self._said(
            "receipt",
            receipt_message(
                task=TASK,
                owner=OWNER,
                round=number,
                delivered=delivered,
                earned_micro=earned(self.payment, delivered=delivered, rounds=self.rounds),
                held_micro=0,
                update=digest(message),
            ),
        )
        signed = {"receipt": receipt, "market_signature": self.key.sign(canonical(receipt))}
        self.paid.setdefault(number, signed)
        if len(self.paid) == self.rounds:
            self.state, self.events = "completed", self.events + 1
        return self._said("signed receipt", signed)


def problem(code: str, status: int) -> Raw:
    """Return a refusal as the market's API shapes it."""
    body = json.dumps({"code": code, "detail": "says the market", "status": status}).encode()
    return Raw(body, status, {"Content-Type": "application/problem+json"})


class _Handler(BaseHTTPRequestHandler):
    def _serve(self) -> None:
        path, _, query = self.path.partition("?")
        parameters = dict(part.split("=", 1) for part in query.split("&") if part)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if key := self.headers.get("Idempotency-Key"):
            self.server.market.keys[path.split("/")[-1]].append(key)  # type: ignore
        response = self.server.market.respond(self.command, path, parameters, body)  # type: ignore
        if not isinstance(response, Raw):
            response = Raw(
                json.dumps(response).encode(), headers={"Content-Type": "application/json"}
            )
        if response.pieces is not None:
            self._send_pieces(response)
            return
        if response.after_s and self.server.ending.wait(response.after_s):  # type: ignore
            return
        self.send_response(response.status)
        for name, text in {"Content-Length": str(len(response.body)), **response.headers}.items():
            self.send_header(name, text)
        self.end_headers()
        with suppress(OSError):  # the device has read enough
            self.wfile.write(response.body)

    def _send_pieces(self, response: Raw) -> None:
        market, ending = self.server.market, self.server.ending  # type: ignore
        self.close_connection = True
        for piece in response.pieces() if response.pieces else ():
            if ending.wait(response.drip_s) or market.sent > SENT_MAX:
                return
            try:
                self.wfile.write(piece)
            except OSError:  # the device has read enough
                return
            market.sent += len(piece)

    do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the library's names

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for them: no socket is left behind

    def handle_error(self, *_: Any) -> None:
        """Say nothing: a device may hang up."""


@contextmanager
def malicious_market(**options: Any) -> Iterator[MaliciousMarket]:
    """Serve a market on a free port; ``cheats`` can be changed at any time."""
    server = _Server(("127.0.0.1", 0), _Handler)
    options.setdefault("cheats", {})
    market = MaliciousMarket(url=f"http://127.0.0.1:{server.server_address[1]}", **options)
    server.market, server.ending = market, threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield market
    finally:
        server.ending.set()  # type: ignore[attr-defined]
        server.shutdown()
        thread.join()
        server.server_close()
