"""A market that never ends: whatever a device reads of it, memory, requests and time have bounds.

Undoing a bound of ``wire.bounds``, or of those who use it, makes a test here fail: the market stops
by itself only after far more than a device may take.
"""

from __future__ import annotations

import itertools
import threading
import tracemalloc
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from fedbourse.cli.verify import task_records
from fedbourse.device import Agent, DeviceSettings, market_client
from fedbourse.errors import ProtocolError, Refused, Unreachable
from fedbourse.protocol import bounds
from fedbourse.protocol.connection import Connection
from fedbourse.tasks.card import TaskCard
from fedbourse.testing.device.malicious_market import (
    CARD,
    TASK,
    MaliciousMarket,
    Raw,
    malicious_market,
)
from fedbourse.testing.device.owners import Data, delivered, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SETTINGS = DeviceSettings(value=1.0, lifetime_cap=5.0)
MEMORY_MAX = 64 * 2**20
SENT_MAX = 64 * 2**20
"""What a device may have taken of endless responses, asked again and with what sockets hold."""
HEAD = b"HTTP/1.1 200 OK\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbourse.protocol.transport._pause_s", lambda attempt: 0.0)
    monkeypatch.setattr("fedbourse.device.deal_worker._WAIT_S", 0.0)
    monkeypatch.setattr(market_client, "Connection", partial(Connection, timeout_s=5.0))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait half a second instead of a minute for a response that comes little by little."""
    monkeypatch.setattr(bounds, "PATIENCE_S", 0.5)
    monkeypatch.setattr(bounds, "BYTES_PER_S_MIN", 10**8)


@contextmanager
def little_memory() -> Iterator[None]:
    """Fail where more memory was used at any moment."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_MAX


@contextmanager
def device_at(market: MaliciousMarket, folder: Path, **options: Any) -> Iterator[Agent]:
    with Agent.create(folder, SETTINGS, data=Data(), **options) as agent:
        agent.enrol(market.url, "fbe_token")
        yield agent


def endless(first: bytes, again: bytes) -> Raw:
    """Send one thing, and another one for ever."""
    return Raw(pieces=lambda: itertools.chain([first], itertools.repeat(again)))


TOO_LONG = {
    "a text": endless(HEAD + b'"', b"x" * 2**16),
    "a list of nothing": endless(HEAD + b"[", b"[]," * 2**14),
    "objects": endless(HEAD + b'{"tasks": [', b'{"task": "x"},' * 2**12),
    "a refusal": endless(b'HTTP/1.1 409 No\r\n\r\n{"detail": "', b"x" * 2**16),
    "a redirect": endless(b"HTTP/1.1 302 No\r\nLocation: http://x/\r\n\r\n", b"x" * 2**16),
    "chunks": endless(CHUNKED, b"10000\r\n" + b" " * 2**16 + b"\r\n"),
    "a head": endless(b"HTTP/1.1 200 OK\r\n", b"X-More: and more\r\n" * 2**10),
    "a status line": endless(b"HTTP/1.1 200 ", b"O" * 2**12),
    "a chunk's own line": endless(CHUNKED + b"1;", b"x" * 2**12),
}
PLACES: dict[str, Callable[[Agent], object]] = {
    "card": lambda agent: agent.card(TASK),
    "task": lambda agent: agent.advise(TASK),
    "market": lambda agent: agent.tasks(),
    "interest": lambda agent: agent.join(TASK),
}


@pytest.mark.parametrize(
    ("place", "update"),
    [*itertools.product(["tasks"], TOO_LONG), *itertools.product(PLACES, ["a text", "a refusal"])],
)
def test_a_response_without_an_end_is_given_up(place: str, update: str, tmp_path: Path) -> None:
    with malicious_market() as market, device_at(market, tmp_path / "device") as agent:
        market.cheats[place] = lambda _: TOO_LONG[update]
        with little_memory(), pytest.raises((ProtocolError, Unreachable)) as refused:
            (PLACES | {"tasks": PLACES["market"]})[place](agent)
        assert len(str(refused.value)) < 400
        assert market.sent < SENT_MAX


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "drops",
    [
        endless(HEAD, b" "),
        endless(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x"),
        endless(b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
        endless(CHUNKED + b"1;", b"x"),
        endless(b"HTTP/1.1 409 No\r\n\r\n", b" "),
    ],
    ids=["a body", "a head", "interim responses", "a chunk", "a refusal"],
)
def test_a_response_that_drips_is_given_up(drops: Raw, tmp_path: Path) -> None:
    with malicious_market() as market, device_at(market, tmp_path / "device") as agent:
        assert drops.pieces is not None
        pieces = partial(itertools.islice, drops.pieces(), 500)  # a device that waits on is shown
        slow = Raw(pieces=pieces, drip_s=0.02)
        market.cheats["tasks"] = lambda _: slow
        with pytest.raises((ProtocolError, Unreachable), match=r"too slowly|too long|status 409"):
            agent.tasks()
        assert market.requests["tasks"] == 1


def test_many_values_in_few_bytes_are_not_read(tmp_path: Path) -> None:
    body = b"[" + b"[]," * (2**20 - 1) + b"[]]"  # takes twenty times its own size
    with malicious_market() as market, device_at(market, tmp_path / "device") as agent:
        market.cheats["tasks"] = lambda _: Raw(body)
        with little_memory(), pytest.raises(ProtocolError, match="values"):
            agent.tasks()


def numbered(page: dict[str, Any], count: int) -> dict[str, Any]:
    """Return a page with as many tasks as asked, each with an id of its own."""
    (task,) = page["tasks"]
    return {"tasks": [{**task, "task": f"{n:024x}"} for n in range(count)], "next": "7" * 24}


def test_an_endless_list_of_tasks_is_read_so_far(tmp_path: Path) -> None:
    with malicious_market() as market, device_at(market, tmp_path / "device") as agent:
        market.cheats["tasks"] = lambda page: numbered(page, 100)
        with little_memory():
            assert len(agent.tasks()) == bounds.TASKS_MAX
        assert market.requests["tasks"] == bounds.TASKS_MAX / bounds.TASKS_A_PAGE
        assert len(agent.tasks(at_most=1)) == 1
        for page in ({"tasks": [], "next": "7" * 24}, {"tasks": [], "next": 1.5}):
            market.cheats["tasks"] = lambda _, page=page: page
            with pytest.raises(ProtocolError, match=r"no end|continues at 1\.5"):
                agent.tasks()
        assert market.requests["tasks"] < 50


def test_a_log_that_ever_grows_is_read_so_far(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        delivered(folder, 1)
        number = itertools.count()
        event = {"kind": "ticked", "body": {"hash": "0" * 64, "offer": {"padding": "x" * 20_000}}}
        market.cheats["events"] = lambda _: {"events": [event] * 100, "next": next(number)}
        with Agent(folder, read_only=True) as agent, little_memory():
            (price,) = [each for each in agent.verify(TASK) if each.name == "own price"]
        assert price.passed is False
        assert "longer than what is read" in price.detail
        market.cheats["events"] = lambda _: {"events": [], "next": next(number)}
        with Agent(folder, read_only=True) as agent:
            (price,) = [each for each in agent.verify(TASK) if each.name == "own price"]
        assert "no end" in price.detail
        assert market.requests["events"] < 50


@pytest.mark.parametrize("place", ["events", "allocations", "statement", "updates"])
def test_records_without_an_end_are_verified_so_far(place: str) -> None:
    def ask(path: str) -> Any:
        *_, last = path.split("/")
        asked.append(path)
        if last == place:
            return {"events": [], "owners": [], "entries": [], "updates": [], "next": len(asked)}
        return {
            "last_hash": "0", "state": "training", "round": 10**17, "rounds": 10**17,
            "card": {}, "balance_micro": 0, "updates": [],
            "events": [], "owners": [], "entries": [], "next": None,
        }  # fmt: skip

    asked: list[str] = []
    with malicious_market() as market, Connection(market.url) as line:
        market.respond = lambda method, path, request, body: ask(path)  # type: ignore[method-assign]
        with pytest.raises(ProtocolError, match="the task's records has no end"):
            task_records(line, TASK, bounds.Allowance("the task's records", 20, 2**20, 600.0))
    assert len(asked) < 40


def test_a_card_or_a_model_that_is_too_large_is_not_joined(tmp_path: Path) -> None:
    large = TaskCard.of({**CARD.document, "features": 2**23 + 1, "dimension": 2**23 + 1})
    with (
        malicious_market(card=large) as market,
        device_at(market, tmp_path / "one") as agent,
        pytest.raises(Refused, match="8388609 parameters; a device reads at most 8388608"),
    ):
        agent.join(TASK)
    columns = [{"name": f"column {number:0190}"} for number in range(1500)]
    layout = {"columns": columns, "label": "label"}
    wide = TaskCard.of({**CARD.document, "features": 1501, "dimension": 1501, "layout": layout})
    with (
        malicious_market(card=wide) as market,
        device_at(market, tmp_path / "two") as agent,
        pytest.raises(ProtocolError, match="more than the 262144 bytes"),
    ):
        agent.join(TASK)


def test_advice_for_more_owners_than_there_are_people_takes_little_memory(tmp_path: Path) -> None:
    with malicious_market() as market, device_at(market, tmp_path / "device") as agent:
        agent.advise(TASK)  # what is imported for it is no advice
        market.cheats["task"] = lambda task: {**task, "interested": 10**17}
        with little_memory():
            assert "others" in agent.advise(TASK).basis


def run_until(agent: Agent, enough: Callable[[], bool], told: list[dict[str, Any]]) -> None:
    """Run the device until what it told is enough; a minute at most."""
    done = threading.Timer(60, agent.stop.set)
    done.start()
    try:
        agent.run(join_open=True)
    finally:
        done.cancel()
    assert enough(), told


def test_a_market_that_never_ends_hides_no_other(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []

    def over() -> bool:
        kinds = {event["event"] for event in told}
        return {"ended", "unreachable"} <= kinds

    def hear(event: dict[str, Any]) -> None:
        told.append(event)
        if over():
            agent.stop.set()

    with malicious_market() as bad, malicious_market() as good:
        with device_at(bad, tmp_path / "device", on_event=hear) as agent:
            agent.enrol(good.url, "fbe_token")
            bad.cheats["tasks"] = lambda _: {"tasks": [], "next": "7" * 24}
            run_until(agent, over, told)
            (deal,) = agent.deals.deals()
        assert (deal.market, deal.outcome) == (good.key.public, "completed")


def test_a_market_with_ever_more_tasks_gets_so_many_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "DEALS_MAX", 3)
    told: list[dict[str, Any]] = []

    def full() -> bool:
        return any(event["event"] == "full" for event in told)

    def hear(event: dict[str, Any]) -> None:
        told.append(event)
        if full():
            agent.stop.set()

    with malicious_market() as market:
        market.cheats["tasks"] = lambda page: numbered(page, 100)
        market.cheats["interest"] = lambda _: {}
        with device_at(market, tmp_path / "device", on_event=hear) as agent:
            run_until(agent, full, told)
            assert len(agent.deals.deals()) == 3
            with pytest.raises(Refused, match=r"3 deals with .* have not ended"):
                agent.join("f" * 24)


def test_deals_that_came_to_nothing_are_forgotten_before_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "CARD_BYTES_MAX", 4000)
    monkeypatch.setattr(bounds, "DEALS_BYTES_MAX", 12_000)
    signed = {"terms": {"payment_micro": 1, "budget": 1.0}}
    with malicious_market() as market, device_at(market, tmp_path / "device") as agent:
        market.cheats["interest"] = lambda _: {}
        for number in range(12):
            deal = agent.join(f"{number:024x}")
            agent.deals.change(deal, state="ended", outcome="cancelled")
        kept = [deal.task for deal in agent.deals.deals()]
        assert 1 < len(kept) < 12
        assert kept == [f"{number:024x}" for number in range(12 - len(kept), 12)]
        # What was signed is never forgotten: then nothing more is joined.
        for number in range(20, 20 + len(kept)):
            deal = agent.deals.deals()[-1]
            agent.deals.put(replace(deal, task=f"{number:024x}", terms=signed))
        with pytest.raises(Refused, match="stores at most 12000 of one market"):
            agent.join("f" * 24)
        assert len(agent.deals.deals()) == len(kept)


def test_a_market_that_never_lets_wait_is_asked_less_often() -> None:
    pace = bounds.Pace(50.0, 10)
    pauses = [pace.pause_s() for _ in range(60)]
    assert pauses[:10] == [0.0] * 10
    assert pauses[-1] > 0.5
