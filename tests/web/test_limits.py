"""Bounds: on bodies by what arrives, on haste by who asks, and never without end in memory."""

from __future__ import annotations

import anyio
import pytest

from fedbourse.web.limits import BodyLimit, Buckets, RateLimit, SecurityHeaders, peer_of
from fedbourse.web.settings import Settings

SETTINGS = Settings(json_bytes_max=1000, update_bytes_max=5000, waiting_bytes_max=8000)
ANSWER = "/v1/tasks/018f/rounds/3/update"
SIGNED = ((b"signature-input", b"sig1=()"), (b"signature", b"sig1=::"))


def scope(path="/v1/tasks", method="POST", headers=(), client=("192.0.2.1", 5), scheme="http"):
    return {
        "type": "http",
        "method": method,
        "path": path,
        "headers": list(headers),
        "client": client,
        "scheme": scheme,
    }


def parts(*bodies, then=None):
    """Return a body that arrives in parts, and what follows it."""
    messages = [
        {"type": "http.request", "body": body, "more_body": i < len(bodies) - 1}
        for i, body in enumerate(bodies)
    ]

    async def receive():
        if messages:
            return messages.pop(0)
        if then is None:
            await anyio.sleep_forever()
        return then

    receive.left = messages  # type: ignore[attr-defined]
    return receive


class Echo:
    """Answers with the length of the body."""

    def __init__(self):
        self.bodies = []

    async def __call__(self, scope, receive, send):
        message = await receive()
        assert not message["more_body"]
        self.bodies.append(message["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


def answer(app, scope, receive=None):
    sent = []

    async def send(message):
        sent.append(message)

    async def run():
        with anyio.fail_after(5):
            await app(scope, receive or parts(b""), send)

    anyio.run(run)
    return sent


def status(sent):
    return sent[0]["status"]


def headers(sent):
    return {name.decode(): value.decode() for name, value in sent[0]["headers"]}


def test_a_body_within_its_bound_arrives_whole():
    echo = Echo()
    assert status(answer(BodyLimit(echo, SETTINGS), scope(), parts(b"a" * 400, b"b" * 600))) == 200
    assert echo.bodies == [b"a" * 400 + b"b" * 600]


@pytest.mark.parametrize(
    "claimed", [[], [(b"content-length", b"10")], [(b"content-length", b"rubbish")]]
)
def test_a_body_is_measured_by_what_arrives(claimed):
    echo = Echo()
    endless = parts(*[b"x" * 100] * 1000)
    sent = answer(BodyLimit(echo, SETTINGS), scope(headers=claimed), endless)
    assert status(sent) == 413
    assert headers(sent)["content-type"] == "application/problem+json"
    assert headers(sent)["connection"] == "close"
    assert not echo.bodies
    assert len(endless.left) > 980  # it was not read to its end


@pytest.mark.parametrize("length", [b"1001", b"10000000", b"9" * 5000])
def test_a_body_that_claims_too_much_is_not_read(length):
    body = parts(b"x")
    sent = answer(BodyLimit(Echo(), SETTINGS), scope(headers=[(b"content-length", length)]), body)
    assert status(sent) == 413
    assert body.left


def test_only_an_update_may_be_large():
    app = BodyLimit(Echo(), SETTINGS)
    body = b"x" * 5000
    assert status(answer(app, scope(ANSWER, "PUT", SIGNED), parts(body))) == 200
    assert status(answer(app, scope(ANSWER, "PUT", SIGNED), parts(body, b"x"))) == 413
    assert status(answer(app, scope(ANSWER, "POST", SIGNED), parts(body))) == 413
    assert status(answer(app, scope(ANSWER + "/x", "PUT", SIGNED), parts(body))) == 413
    assert status(answer(app, scope("/v1/tasks/a/plan", "PUT", SIGNED), parts(body))) == 413


@pytest.mark.parametrize("given", [(), SIGNED[:1], SIGNED[1:], [(b"authorization", b"Bearer x")]])
def test_an_update_that_does_not_claim_to_be_signed_may_not_be_large(given):
    app = BodyLimit(Echo(), SETTINGS)
    sent = answer(app, scope(ANSWER, "PUT", given), parts(b"x" * 1001))
    assert status(sent) == 413
    assert b"1000 bytes at this address without a device's signature" in sent[1]["body"]
    assert status(answer(app, scope(ANSWER, "PUT", given), parts(b"x" * 1000))) == 200


@pytest.mark.parametrize("claimed", [[], [(b"content-length", b"1")]])
@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PATCH"])
def test_what_only_reads_or_ends_has_no_body(method, claimed):
    echo = Echo()
    sent = answer(BodyLimit(echo, SETTINGS), scope(method=method, headers=claimed), parts(b"x"))
    assert status(sent) == 413
    assert headers(sent)["connection"] == "close"
    assert f"{method} has no body here".encode() in sent[1]["body"]
    assert not echo.bodies
    assert status(answer(BodyLimit(echo, SETTINGS), scope(method=method))) == 200


def test_a_body_that_trickles_is_cut_off():
    app = BodyLimit(Echo(), Settings(body_timeout_s=0.01))

    async def slow():
        await anyio.sleep_forever()

    assert status(answer(app, scope(), slow)) == 408


def test_all_bodies_together_are_bounded_and_given_back():
    app = BodyLimit(Echo(), Settings(json_bytes_max=1000, waiting_bytes_max=500))
    assert status(answer(app, scope(), parts(b"x" * 501))) == 503
    for _ in range(5):
        assert status(answer(app, scope(), parts(b"x" * 400))) == 200


def unfinished(body, more=b""):
    """Return a body that never ends, and the event that is set once all of it was read."""
    sent, read = [body, more], anyio.Event()

    async def receive():
        if not sent:
            read.set()
            await anyio.sleep_forever()
        return {"type": "http.request", "body": sent.pop(0), "more_body": True}

    return receive, read


def test_one_address_holds_its_share_and_others_are_still_read():
    app = BodyLimit(Echo(), Settings(waiting_bytes_max=1000, waiting_bytes_per_peer=300))
    other = ("192.0.2.2", 5)

    async def ask(client, receive):
        sent = []

        async def send(message):
            sent.append(message)

        with anyio.fail_after(5):
            await app(scope(client=client), receive, send)
        return sent

    async def run():
        async with anyio.create_task_group() as strangers:
            for _ in range(3):
                receive, read = unfinished(b"x" * 50, b"x" * 50)
                strangers.start_soon(app, scope(), receive, None)
                await read.wait()
            refused = await ask(("192.0.2.1", 9), parts(b"x"))
            assert status(refused) == 503
            assert b"too much from this address" in refused[1]["body"]
            assert status(await ask(("192.0.2.1", 9), parts(b""))) == 200
            assert status(await ask(other, parts(b"x" * 300))) == 200
            assert status(await ask(other, parts(b"x" * 301))) == 503
            strangers.cancel_scope.cancel()
        assert status(await ask(("192.0.2.1", 9), parts(b"x" * 300))) == 200

    anyio.run(run)
    assert not app._held  # no address is remembered


def test_a_client_that_goes_away_is_forgotten():
    echo = Echo()
    app = BodyLimit(echo, SETTINGS)

    async def gone():
        return {"type": "http.disconnect"}

    assert answer(app, scope(), gone) == []
    assert not echo.bodies


def test_the_end_of_the_connection_is_still_seen_after_the_body():
    seen = []

    async def watching(scope, receive, send):
        seen.extend([await receive(), await receive()])

    answer(BodyLimit(watching, SETTINGS), scope(), parts(b"x", then={"type": "http.disconnect"}))
    assert [message["type"] for message in seen] == ["http.request", "http.disconnect"]


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def test_a_bucket_empties_and_fills_again():
    clock = Clock()
    buckets = Buckets(per_s=2, burst=3, now_s=clock)
    assert [buckets.wait_s("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert buckets.wait_s("b") == 0
    clock.now_s = 0.5
    assert buckets.wait_s("a") == 0
    assert buckets.wait_s("a") > 0
    clock.now_s = 1000.0
    assert [bool(buckets.wait_s("a")) for _ in range(4)] == [False, False, False, True]


def test_a_clock_that_goes_back_gives_nothing():
    clock = Clock()
    buckets = Buckets(per_s=1, burst=1, now_s=clock)
    assert buckets.wait_s("a") == 0
    clock.now_s = -50.0
    assert buckets.wait_s("a") > 0


def test_buckets_remember_a_bounded_number_of_keys():
    buckets = Buckets(per_s=1, burst=1, now_s=Clock(), keys_max=10)
    for i in range(1000):
        buckets.wait_s(str(i))
    assert len(buckets) == 10


def test_haste_is_told_when_to_try_again():
    clock = Clock()
    app = RateLimit(Echo(), Buckets(per_s=0.1, burst=1, now_s=clock))
    assert status(answer(app, scope())) == 200
    sent = answer(app, scope())
    assert status(sent) == 429
    assert headers(sent)["retry-after"] == "10"
    assert status(answer(app, scope(client=("192.0.2.2", 5)))) == 200
    clock.now_s = 10.0
    assert status(answer(app, scope())) == 200


def test_an_ipv6_network_counts_as_one_peer():
    assert peer_of(scope(client=("2001:db8::1", 1))) == peer_of(scope(client=("2001:db8::2", 9)))
    assert peer_of(scope(client=("2001:db8::1", 1))) != peer_of(scope(client=("2001:db8:1::1", 1)))
    assert peer_of(scope(client=None)) == peer_of({"type": "http"})


def test_every_answer_carries_the_headers_that_protect_it():
    sent = headers(answer(SecurityHeaders(Echo()), scope()))
    assert sent["x-content-type-options"] == "nosniff"
    assert sent["content-security-policy"].startswith("default-src 'none'")
    assert sent["cache-control"] == "no-store"
    assert "strict-transport-security" not in sent
    assert "strict-transport-security" in headers(
        answer(SecurityHeaders(Echo()), scope(scheme="https"))
    )
