"""Requests that wait: woken when there is news, bounded, and given up with their clients."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import httpx2
import pytest

from fedbourse.errors import Conflict, NotFound, TooManyRequests, Unauthenticated
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.parties import EnrolledDevice
from fedbourse.protocol.connection import Connection
from fedbourse.protocol.keys import SigningKey, key_id
from fedbourse.storage import SqlStore
from fedbourse.testing.trading import BUYER
from fedbourse.web.app import create_app
from web.fixtures import UNHURRIED, World
from web.servers import served

SOON_S = 20


class Later:
    """Something that is asked in a thread, and waited for."""

    def __init__(self, ask):
        self._ask, self._found, self._error = ask, None, None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            self._found = self._ask()
        except Exception as error:
            self._error = error

    def result(self):
        self._thread.join(SOON_S + 20)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error
        return self._found


class Served:
    """A world on a real socket; its clock moves on when the test says so."""

    def __init__(self, world, app, url, kept):
        self.world, self.app, self.url, self._kept = world, app, url, kept
        self.long_polls = app.state.service.long_polls
        self.path = f"/v1/tasks/{world.training.id}"

    def connection(self, key):
        now = self.world.trading
        made = Connection(self.url, key=key, now_ms=lambda: now.time_ms)
        return self._kept.enter_context(made)

    def ask(self, owner, after=-1, wait=0.0):
        path = f"{self.path}/round-request"
        return self.connection(owner.key).fetch(path, {"after": after, "wait": wait}, wait_s=wait)

    def later(self, *asked, **options):
        before = len(self.long_polls)
        found = Later(lambda: self.ask(*asked, **options))
        until(lambda: len(self.long_polls) > before)
        return found

    def stranger(self):
        """Somebody unknown who waits until the test closes the connection."""
        before = len(self.long_polls)
        url = httpx2.URL(self.url)
        line = f"GET {self.path}?seen=999&wait=30 HTTP/1.1"
        connection = socket.create_connection((url.host, url.port), timeout=SOON_S)
        connection.sendall(f"{line}\r\nHost: {url.host}:{url.port}\r\n\r\n".encode())
        until(lambda: len(self.long_polls) > before)
        return connection

    def close_round(self):
        trading = self.world.trading
        task = trading.task(self.world.training.id)
        for owner in self.world.owners:
            trading.update(owner, task)
        assert trading.advance() == 1
        self.long_polls.changed()


def until(what):
    end = time.monotonic() + SOON_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


@contextmanager
def a_market(store, **settings):
    world = World(store)
    quick = {"waiting_poll_s": 60.0, "wait_max_s": 30.0, **settings}
    app = create_app(world.market, store, world.bank, replace(UNHURRIED, **quick))
    assert world.training.round == 0
    with served(app) as url, ExitStack() as kept:
        yield Served(world, app, url, kept)


def test_an_open_round_is_answered_at_once_and_a_newer_one_when_it_opens(store):
    with a_market(store) as market:
        ann = market.world.ann
        response = market.ask(ann, wait=20.0)
        assert (response.status, response.headers["fedbourse-round"]) == (200, "0")
        assert market.ask(ann, after=0).status == 204
        later = market.later(ann, after=0, wait=30.0)
        market.close_round()
        response = later.result()
        assert (response.status, response.headers["fedbourse-round"]) == (200, "1")
        assert len(market.long_polls) == 0


def test_those_who_wait_keep_nobody_of_their_address_from_being_answered(store):
    with a_market(store, peer_at_once=1) as market:
        waiting = [market.later(owner, after=0, wait=30.0) for owner in market.world.owners]
        assert market.ask(market.world.ann, after=0).status == 204
        market.close_round()
        assert {each.result().headers["fedbourse-round"] for each in waiting} == {"1"}


def test_nothing_new_is_said_when_time_is_up(store):
    with a_market(store) as market:
        begun = time.monotonic()
        response = market.ask(market.world.ann, after=0, wait=0.3)
        assert (response.status, response.content) == (204, b"")
        assert 0.25 < time.monotonic() - begun < SOON_S


def test_what_another_process_changed_is_found_by_looking(database_url, kind):
    with (
        SqlStore(database_url) as store,
        a_market(store, waiting_poll_s=0.05) as market,
        SqlStore(database_url) as other,
    ):
        later = market.later(market.world.ann, after=0, wait=30.0)
        market.world.trading.store = other
        market.long_polls.changed = lambda: None
        market.close_round()
        assert later.result().headers["fedbourse-round"] == "1"


def test_the_end_of_training_ends_the_waiting(store):
    with a_market(store) as market:
        later = market.later(market.world.ann, after=0, wait=30.0)
        market.world.trading.do(buyer_commands.cancel, BUYER, market.world.training.id)
        market.long_polls.changed()
        with pytest.raises(Conflict, match="needs a task in training; it is cancelled"):
            later.result()


def test_a_device_that_was_retired_meanwhile_gets_nothing(store):
    with a_market(store) as market:
        ann = market.world.ann
        later = market.later(ann, after=0, wait=30.0)
        new = SigningKey.generate()
        with store.begin() as tx:
            tx.put_device(EnrolledDevice(key_id(new.public), ann.name, new.public, 1))
        trading = market.world.trading
        task = trading.task(market.world.training.id)
        for owner in market.world.owners:
            trading.update(owner, task)
        trading.advance()
        market.long_polls.changed()
        with pytest.raises(Unauthenticated, match="another one of its owner has taken its place"):
            later.result()


def test_who_may_not_ask_does_not_wait(store):
    with a_market(store) as market:
        zed = market.world.people["another owner"]
        with pytest.raises(NotFound, match="signed no terms"):
            market.ask(zed, after=0, wait=30.0)
        draft = f"{market.url}/v1/tasks/{market.world.draft.id}"
        shown = httpx2.get(draft, params={"seen": 99, "wait": 30}, trust_env=False, timeout=SOON_S)
        assert shown.status_code == 404
        assert len(market.long_polls) == 0


def test_no_more_wait_than_allowed_and_a_client_that_leaves_frees_its_place(store):
    with a_market(store, waiting_per_peer=2) as market:
        ann = market.world.ann
        gone = market.stranger()
        later = market.later(ann, after=0, wait=30.0)
        with pytest.raises(TooManyRequests, match="too many requests are waiting"):
            market.ask(ann, after=0, wait=30.0)
        gone.close()
        until(lambda: len(market.long_polls) == 1)
        second = market.later(ann, after=0, wait=30.0)
        market.close_round()
        assert later.result().status == second.result().status == 200


def test_strangers_leave_places_to_those_who_proved_who_they_are(store):
    with a_market(store, waiting_max=4, waiting_strangers_max=2) as market:

        def ask():
            asked = {"seen": 999, "wait": 2}
            url = f"{market.url}{market.path}"
            return httpx2.get(url, params=asked, trust_env=False, timeout=SOON_S).status_code

        strangers = [market.stranger() for _ in range(2)]
        assert ask() == 429
        authenticated = [market.later(market.world.ann, after=0, wait=30.0) for _ in range(2)]
        with pytest.raises(TooManyRequests):  # all places together are bounded as before
            market.ask(market.world.owners[1], after=0, wait=30.0)
        market.close_round()
        assert {each.result().status for each in authenticated} == {200}
        for each in strangers:
            each.close()
        until(lambda: len(market.long_polls) == 0)
        assert ask() == 200  # their places are free again


def test_one_caller_takes_no_more_places_than_its_own(store):
    with a_market(store, waiting_per_caller=1) as market:
        ann, other = market.world.ann, market.world.owners[1]
        assert other.name != ann.name
        first = market.later(ann, after=0, wait=30.0)
        with pytest.raises(TooManyRequests, match="too many requests are waiting"):
            market.ask(ann, after=0, wait=30.0)
        second = market.later(other, after=0, wait=30.0)
        market.close_round()
        assert first.result().status == second.result().status == 200
        assert market.ask(ann, after=1, wait=0.5).status == 204


def test_a_request_that_waits_holds_no_body(store):
    with a_market(store) as market:
        asked = {"seen": 999, "wait": 30}
        refused = httpx2.request(
            "GET",
            f"{market.url}{market.path}",
            params=asked,
            content=b"x",
            trust_env=False,
            timeout=SOON_S,
        )
        assert refused.status_code == 413
        assert refused.json()["detail"] == "GET has no body here; found one, send none"
        assert len(market.long_polls) == 0


def test_many_wait_with_one_query_and_no_thread(store):
    with a_market(store, waiting_poll_s=0.05, waiting_per_caller=50) as market:
        asked = []
        versions = market.long_polls._versions
        market.long_polls._versions = lambda: asked.append(1) or versions()
        waiting = [market.later(market.world.ann, after=0, wait=30.0) for _ in range(50)]
        # The few that answer requests: none for each that waits.
        answering = [each for each in threading.enumerate() if each.name.startswith("AnyIO")]
        assert 1 <= len(answering) <= 45
        asked.clear()
        time.sleep(0.5)
        assert 1 <= len(asked) <= 11
        market.close_round()
        assert {each.result().headers["fedbourse-round"] for each in waiting} == {"1"}


def test_waiting_ends_when_the_market_stops(store):
    with a_market(store, waiting_poll_s=0.05) as market:
        later = market.later(market.world.ann, after=0, wait=30.0)
        begun = time.monotonic()
        market.long_polls.stopping = lambda: True
        assert later.result().status == 204
        assert time.monotonic() - begun < SOON_S


def test_a_task_is_shown_once_it_has_more_events_than_were_seen(store):
    with a_market(store) as market:
        stranger = market._kept.enter_context(Connection(market.url))
        now = stranger.get(market.path)
        assert stranger.get(market.path, {"seen": now["events"] - 1, "wait": 30}) == now
        assert stranger.get(market.path, {"seen": now["events"], "wait": 0.1}) == now
        asked = {"seen": now["events"], "wait": 30}
        later = Later(lambda: stranger.get(market.path, asked, wait_s=30))
        until(lambda: len(market.long_polls) == 1)
        market.close_round()
        assert later.result()["events"] == now["events"] + 1
        market.world.trading.do(buyer_commands.cancel, BUYER, market.world.training.id)
        ended = stranger.get(market.path, {"seen": 10**6, "wait": 30})
        assert ended["state"] == "cancelled"


@pytest.mark.parametrize("wrong", ["-1", "31", "nan", "inf", "soon", "1e9"])
def test_a_wait_is_bounded(store, wrong):
    with a_market(store) as market:
        for path in (market.path, f"{market.path}/round-request"):
            answer = httpx2.get(f"{market.url}{path}", params={"wait": wrong}, trust_env=False)
            assert answer.status_code in (401, 422)
