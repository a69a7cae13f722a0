"""A task's stream: every event once and in order, resumed by number, ended with the task."""

from __future__ import annotations

from dataclasses import replace

import anyio
import httpx2
import pytest
from fastapi import APIRouter

from fedbourse.errors import InvalidInput, NotFound, TooManyRequests
from fedbourse.market.log import next_event
from fedbourse.market.records import State, Task
from fedbourse.market.service import Market
from fedbourse.protocol.connection import Connection
from fedbourse.protocol.keys import SigningKey
from fedbourse.tasks.card import TaskCard
from fedbourse.web.app import create_app
from fedbourse.web.dependencies import ServiceDep  # noqa: TC001 - FastAPI reads it
from fedbourse.web.settings import Settings
from fedbourse.web.stream import Streams, last_event
from web.people import NOW, NoPayments
from web.servers import served

QUICK = Settings(stream_poll_s=0.01, heartbeat_s=0.05, streams_max=3, streams_per_peer=2)
CARD = TaskCard(
    goal="is it late?",
    data="flights",
    scaling="abc",
    loss="logistic",
    query="gradient",
    compensation="proportional",
    reward=2.0,
    model="logistic",
    features=10,
    classes=2,
    dimension=10,
    step_size=1.0,
    rounds=5,
    samples=20,
    clip=1.0,
    aggregation="equal",
    vesting="by-round",
)
ID = "0" * 23 + "1"


def start(store, events=1):
    task = Task(ID, "buyer:acme", CARD, State.OPEN, NOW, last_hash=CARD.digest)
    with store.begin() as tx:
        tx.add_task(task)
    return happen(store, task, events)


def happen(store, task, events, state=State.OPEN):
    with store.begin() as tx:
        for _ in range(events):
            after = (task.last_sequence, task.last_hash)
            event = next_event(ID, "opened", {"é": 1}, at_ms=NOW, after=after)
            tx.append_event(event)
            task = replace(task, last_sequence=event.sequence, last_hash=event.hash)
        task = replace(task, state=state)
        tx.save_task(task)
    return task


async def numbers(streams, *, after=-1, at_most=10**6):
    """Read a stream to its end, or so many events of it."""
    answer = await streams.respond(ID, after=after, peer="p")
    found = []
    if answer.status_code == 204:
        return found

    async def send(message):
        for line in message.get("body", b"").decode().splitlines():
            if line.startswith("id: "):
                found.append(int(line[4:]))
        if len(found) >= at_most:
            gone.set()

    async def receive():
        await gone.wait()
        return {"type": "http.disconnect"}

    gone = anyio.Event()
    with anyio.fail_after(20):
        await answer({"type": "http", "method": "GET"}, receive, send)
    return found


def test_an_ended_task_is_streamed_to_its_last_event(store):
    happen(store, start(store, 250), 1, State.COMPLETED)
    streams = Streams(store, QUICK)
    assert anyio.run(lambda: numbers(streams)) == list(range(251))
    assert anyio.run(lambda: numbers(Streams(store, QUICK), after=248)) == [249, 250]
    assert len(streams) == 0


def test_a_stream_whose_last_event_was_seen_says_so(store):
    happen(store, start(store, 3), 0, State.CANCELLED)
    streams = Streams(store, QUICK)
    assert anyio.run(lambda: streams.respond(ID, after=2, peer="p")).status_code == 204
    assert len(streams) == 0


def test_events_are_sent_as_they_happen(store):
    task = start(store, 1)

    async def run():
        found = []

        async def watch():
            found.extend(await numbers(Streams(store, QUICK)))

        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            now = task
            for state in (State.OPEN, State.OPEN, State.COMPLETED):
                await anyio.sleep(0.03)
                now = await anyio.to_thread.run_sync(happen, store, now, 2, state)
        return found

    assert anyio.run(run) == list(range(7))


def test_a_client_that_leaves_frees_its_place(store):
    start(store, 5)
    streams = Streams(store, QUICK)
    assert anyio.run(lambda: numbers(streams, at_most=5)) == [0, 1, 2, 3, 4]
    assert len(streams) == 0


def test_streams_are_bounded_in_all_and_for_each_peer(store):
    start(store, 1)
    streams = Streams(store, QUICK)

    async def run():
        for peer in ("a", "a", "b"):
            await streams.respond(ID, after=-1, peer=peer)
        for peer in ("a", "b", "c"):
            with pytest.raises(TooManyRequests):
                await streams.respond(ID, after=-1, peer=peer)

    anyio.run(run)


def test_a_task_that_is_not_there_takes_no_place(store):
    streams = Streams(store, QUICK)
    with pytest.raises(NotFound):
        anyio.run(lambda: streams.respond(ID, after=-1, peer="a"))
    assert len(streams) == 0


@pytest.mark.parametrize(("text", "number"), [(None, 7), ("", 7), ("41", 41), ("0", 0), ("-1", -1)])
def test_the_header_is_newer_than_the_query(text, number):
    assert last_event(text, 7) == number


@pytest.mark.parametrize("text", ["x", "-2", "1.5", "1e3", "9" * 5000, "٣", "1 2"])
def test_a_number_that_is_none_is_refused(text):
    with pytest.raises(InvalidInput):
        last_event(text, -1)


def test_the_client_follows_a_task_over_a_real_connection(store):
    task = start(store, 2)
    app = create_app(Market(SigningKey.generate()), store, NoPayments(), QUICK)
    router = APIRouter()

    @router.get("/stream/{task}")
    async def stream(task: str, service: ServiceDep, after: int = -1):
        return await service.streams.respond(task, after=after, peer="p")

    app.include_router(router)
    with served(app) as url, Connection(url, sleep=lambda seconds: None) as connection:
        events = connection.events(f"/stream/{ID}")
        sequences = [next(events)["sequence"], next(events)["sequence"]]
        happen(store, task, 2, State.COMPLETED)
        # The toy route does not read Last-Event-ID, so the events are not asked for to the end.
        sequences += [next(events)["sequence"], next(events)["sequence"]]
        events.close()  # type: ignore[attr-defined]
        assert sequences == [0, 1, 2, 3]
        answer = httpx2.get(f"{url}/stream/{ID}?after=3", trust_env=False)
        assert answer.status_code == 204
