"""Attackers of ``attack.py``: a stranger, a buyer, an owner, a bad network; and a bad market."""

from __future__ import annotations

import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2

from fedbourse.encoding.canonical import canonical
from fedbourse.protocol.keys import SigningKey
from fedbourse.protocol.signatures import Request, sign_request
from fedbourse.testing.device.adversary import FORGED_OFFERS, OFFERS, QUERIES, TERMS
from fedbourse.testing.device.malicious_market import malicious_market
from fedbourse.testing.device.owners import Data, delivered, followed, joined

if TYPE_CHECKING:
    from pathlib import Path

AWAY = "127.0.0.2"
"""Where attackers are; the honest device is at 127.0.0.1."""


@dataclass(frozen=True)
class Target:
    """A market that is served, and what attackers know of it."""

    url: str
    tasks: dict[str, str]
    tokens: dict[str, str]
    owner: str
    key: SigningKey
    offer: str
    budget: float


@dataclass
class Score:
    """What one attacker tried, and what came of it."""

    tried: Counter[str] = field(default_factory=Counter)
    through: Counter[str] = field(default_factory=Counter)


Attack = Callable[[Target, float], Score]


def ask(
    client: httpx2.Client, score: Score, what: str, method: str, path: str, **options: Any
) -> httpx2.Response | None:
    """Send one request; a fault of the server's own counts as got through."""
    score.tried[what] += 1
    try:
        response = client.request(method, path, **options)
    except httpx2.HTTPError:
        return None
    if response.status_code == 500:
        score.through["responses of 500"] += 1
    return response


def attacking(target: Target) -> httpx2.Client:
    """Return a client at another address than the honest device's."""
    away = httpx2.HTTPTransport(local_address=AWAY)
    return httpx2.Client(transport=away, base_url=target.url, timeout=30)


def passes(until: float) -> Iterator[int]:
    """Count how often everything is tried: once at least, and until a moment."""
    yield 0
    number = 1
    while time.monotonic() < until:
        yield number
        number += 1


def stranger(target: Target, until: float) -> Score:
    """Ask for everything that is dear and open to all; make up tokens and devices."""
    score, task = Score(), target.tasks
    dear = [
        f"/tasks/{task['completed']}/report", f"/tasks/{task['completed']}", "/?text=late", "/",
        f"/v1/tasks/{task['completed']}/events?limit=1000", "/v1/tasks?limit=1000",
        f"/tasks/{task['announced']}/earn", "/v1/log", f"/v1/tasks/{task['training']}/head",
    ]  # fmt: skip
    with attacking(target) as client:
        for _ in passes(until):
            for path in dear:
                ask(client, score, "dear pages", "GET", path)
            done = ask(
                client, score, "made-up enrolments", "POST", "/v1/enrolments", **enrolment(target)
            )
            score.through["enrolments"] += done is not None and done.status_code < 300
            headers = {"HX-Request": "true", "HX-Current-URL": "http://["}
            ask(client, score, "nonsense in headers", "GET", "/buy", headers=headers)
    return score


def enrolment(target: Target) -> dict[str, object]:
    """Return what a new device sends, rightly signed, but for its token, which is made up."""
    key, now_ms = SigningKey.generate(), time.time_ns() // 1_000_000
    token = "fbe_" + secrets.token_urlsafe(32)
    headers = {"content-type": "application/json", "idempotency-key": secrets.token_hex(12)}
    request = Request(
        "POST",
        "http",
        urlsplit(target.url).netloc,
        "/v1/enrolments",
        "",
        tuple(headers.items()),
        canonical({"token": token, "public_key": key.public}),
    )
    signed = sign_request(request, key, now_ms=now_ms, nonce=secrets.token_hex(12))
    return {"content": request.body, "headers": headers | signed}


def buyer(target: Target, until: float) -> Score:
    """Look at what steps would do and cards would buy, and look for what single owners said."""
    score, task = Score(), target.tasks
    headers = {"Authorization": f"Bearer {target.tokens['buyer']}"}
    pages = [f"/tasks/{task['announced']}/steps/{step}" for step in ("announce", "cancel")]
    pages += [f"/tasks/{task['announced']}", f"/tasks/{task['training']}", "/buy", "/buy/new"]
    routes = [
        f"/v1/tasks/{task['announced']}/what-if?rewards=1,2,3",
        f"/v1/tasks/{task['completed']}/report",
        f"/v1/tasks/{task['announced']}/allocations",
    ]
    secret = repr(target.budget)[:8]
    with attacking(target) as client:
        form = {"token": target.tokens["buyer"], "next": "/"}
        client.post("/sign-in", data=form, headers={"Origin": target.url})
        for _ in passes(until):
            for path in pages:
                found = ask(client, score, "heavy pages", "GET", path)
                score.through["budgets shown"] += found is not None and secret in found.text
            for path in routes:
                found = ask(client, score, "what-ifs and reports", "GET", path, headers=headers)
                score.through["budgets shown"] += found is not None and secret in found.text
    return score


def owner(target: Target, until: float) -> Score:
    """Claim money that never came, take out too little, and act for others."""
    score, task = Score(), target.tasks
    headers = {"Authorization": f"Bearer {target.tokens['owner']}"}

    def key() -> dict[str, str]:
        return headers | {"Idempotency-Key": secrets.token_hex(12)}

    with attacking(target) as client:
        for _ in passes(until):
            tiny = {"amount_micro": 1, "destination": "x"}
            wrong = [
                ("made-up deposits", "POST", "/v1/deposits", {"reference": secrets.token_hex(8)}),
                ("tiny withdrawals", "POST", "/v1/withdrawals", tiny),
                ("others' tasks", "POST", f"/v1/tasks/{task['announced']}/cancel", {}),
                ("plans without the device", "PUT", f"/v1/tasks/{task['announced']}/plan",
                 {"tick": 0, "budget": 1.0, "previous": target.offer}),
            ]  # fmt: skip
            for what, method, path, body in wrong:
                done = ask(client, score, what, method, path, json=body, headers=key())
                score.through[what] += done is not None and done.status_code < 300
            for path in (
                f"/v1/tasks/{task['training']}/allocations",
                f"/v1/accounts/{target.owner}",
                "/v1/tokens",
            ):
                done = ask(client, score, "others' records", "GET", path, headers=headers)
                score.through["others' records"] += done is not None and done.status_code < 300
            ask(
                client,
                score,
                "own pages",
                "GET",
                f"/v1/tasks/{task['training']}/proof",
                headers=headers,
            )
    return score


def network(target: Target, until: float) -> Score:
    """Hold connections: silent ones, half of a first request, and half of a second one."""
    score, address = Score(), (urlsplit(target.url).hostname, urlsplit(target.url).port)
    whole = b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n"
    starts = {
        "silent connections": b"",
        "half a request": whole[:20],
        "half a second request": whole + whole[:20],
    }
    held: list[tuple[float, str, socket.socket]] = []
    while time.monotonic() < until:
        for what, start in starts.items():
            with suppress(OSError):
                line = socket.create_connection(address, timeout=5, source_address=(AWAY, 0))
                line.sendall(start)
                line.settimeout(0.0)
                held.append((time.monotonic(), what, line))
                score.tried[what] += 1
        time.sleep(0.02)
    deadline = time.monotonic() + 15  # ten seconds for a head, and some patience
    while time.monotonic() < deadline:
        time.sleep(0.5)
    for _, what, line in held:
        score.through[f"{what}: alive after 15 s"] += _alive(line)
        line.close()
    return score


def _alive(line: socket.socket) -> bool:
    with suppress(OSError):
        while line.recv(65536):
            pass
        return False
    with suppress(OSError):
        line.settimeout(0.0)
        return line.recv(1) != b""
    try:
        line.send(b"x")
        line.recv(1)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def bad_market(folder: Path) -> Score:
    """Bend what a device hears of offers, terms and rounds; count when its data was read."""
    score = Score()
    before = [(case, 0) for case in (*OFFERS, *FORGED_OFFERS, *TERMS)]
    for number, (case, rounds) in enumerate([*before, *((case, 2) for case in QUERIES)]):
        with malicious_market() as bad:
            device = joined(folder / str(number), bad)
            if rounds:
                delivered(device, rounds)  # a device that has signed, and works
            bad.cheats[case.place] = case.bend
            score.tried["bent offers, terms and rounds"] += 1
            try:
                followed(device, Data(forbidden=True))
            except AssertionError:
                score.through["reads of the data"] += 1
            score.through["updates"] += len(bad.left) - rounds
    return score


ATTACKS: dict[str, Attack] = {
    "stranger": stranger,
    "buyer": buyer,
    "owner": owner,
    "network": network,
}
