"""What nobody should send: answered with a problem of the caller's, never with one of ours."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import web.clients  # noqa: F401 - quiets a warning of the client that the next line imports
from fedbourse.protocol.signatures import Request
from fedbourse.testing.databases import KINDS
from web.clients import TestClient
from web.fixtures import signed, whole_world
from web.route_table import ROUTES, TABLE, person_of
from web.servers import served

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

CHECKS = [
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
    content_type_conformance,
]
EXAMPLES = 8
"""For each route, database and way of making requests: right ones, and wrong ones."""
BODIES = [route for route in ROUTES if route[0] in ("POST", "PUT")]
JSON_BODIES = [route for route in BODIES if not route[1].endswith(("/update", "/reference"))]


class Proving:
    """Proves who asks on the way to the application, whatever it is that is asked."""

    def __init__(self, app):
        self.app, self.person, self.now_ms = app, None, 0

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or self.person is None:
            await self.app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in scope["headers"]]
        added = self.proof(scope, [each for each in headers if each[0] not in PROOFS], body)

        whole = [{"type": "http.request", "body": body, "more_body": False}]

        async def again():
            return whole.pop() if whole else await receive()

        await self.app({**scope, "headers": added}, again, send)

    def proof(self, scope, headers, body):
        if self.person.token:
            headers.append(("authorization", f"Bearer {self.person.token}"))
        elif self.person.key:
            path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
            host = next((value for name, value in headers if name == "host"), "testserver")
            query = scope["query_string"].decode("latin-1")
            request = Request(scope["method"], "http", host, path, query, tuple(headers), body)
            with contextlib.suppress(Exception):  # what cannot be signed is sent unsigned
                headers = list(signed(request, self.person.key, now_ms=self.now_ms).headers)
        return [(n.lower().encode("latin-1"), v.encode("latin-1")) for n, v in headers]


_COUNT = itertools.count()
PROOFS = ("authorization", "signature", "signature-input", "content-digest")


@pytest.fixture(scope="module", params=KINDS)
def world(request):
    """One world for all: what is refused changes nothing, and what is not may stay."""
    with world_in(request.param, request) as made:
        yield made


@pytest.fixture(scope="module")
def one_world(request):
    """One for what no database gets to see."""
    with world_in("sqlite", request) as made:
        yield made


@contextlib.contextmanager
def world_in(kind, request):
    with whole_world(kind, request) as made:
        made.proving = Proving(made.app)
        made.proving.now_ms = made.trading.time_ms
        with TestClient(made.proving, raise_server_exceptions=False) as client:
            made.client = client
            yield made


def ask(world, route, *, path=None, headers=(), content=b"", kind="application/json", method=None):
    """Ask as the one that the route is for."""
    world.proving.person = person_of(world, TABLE[route].by)
    sent = [("content-type", kind)] if kind else []
    sent += [("idempotency-key", f"key-{next(_COUNT):08d}")]
    return world.client.request(
        method or route[0],
        path or TABLE[route].path(world),
        headers=[*sent, *headers],
        content=content,
    )


def assert_a_problem(answer, what, *, or_fine=False):
    __tracebackhide__ = True
    assert answer.status_code < 500, (what, answer.text)
    if answer.status_code < 400:
        assert or_fine, (what, answer.status_code, answer.text)
        return
    assert answer.headers["content-type"] == "application/problem+json", (what, answer.text)
    found = json.loads(answer.content)
    assert set(found) == {"type", "title", "status", "detail", "code"}, what
    assert "Traceback" not in found["detail"]


DEEP = b"[" * 100_000 + b"]" * 100_000
DIGITS = b"9" * 10_000
NEVER = [
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"1e999",
    b"-1e999",
    DIGITS,
    b"-" + DIGITS,
    b"0." + DIGITS,
    DEEP,
    b'{"a":' * 50 + b"1" + b"}" * 50,
    b'"\\u0000"',
    b'"\\ud800"',
    b'"\xff"',
    b'"' + b"x" * 100_000 + b'"',
]
"""No item of any body is one of these."""
VALUES = [
    *NEVER,
    b"[]",
    b"{}",
    b"true",
    b"-1",
    b"1e-999999999",
    b"-0.0",
    b"1e308",
    b"5e-324",
    b"999999999999999999",
    b'""',
]


def whole_bodies(good):
    """Return bodies that are wrong as a whole; those that some route takes come last."""
    yield b"x" * 10_000_000
    yield b'{"goal":"' + b"x" * 10_000_000 + b'"}'
    yield from (value for value in VALUES if value != b"{}")
    yield good[:-1] or b"{"
    yield good[: len(good) // 2] or b"["
    yield good + b"}"
    yield good + good
    yield b"{'a': 1}"
    yield b'{"a":1,"a":1}'
    yield good[:-1] + b', "more": 1}'
    yield good.decode("utf-8", "replace").encode("utf-16")
    yield b"\xef\xbb\xbf" + good
    yield good.replace(b"{", b'{"\xe9":1,', 1)
    yield b"\x00" + good
    yield b"\x00" * 1000
    yield b"{" + b'"a":1,' * 100_000 + b'"b":1}'


@pytest.mark.parametrize("route", JSON_BODIES, ids=" ".join)
def test_a_hostile_body_is_a_problem(one_world, route):
    good = json.dumps(TABLE[route].body(one_world)).encode()
    for content in whole_bodies(good):
        assert_a_problem(ask(one_world, route, content=content), content[:80])
    for content in (b"null", b"", b"{}"):  # what some routes take
        assert_a_problem(ask(one_world, route, content=content), content, or_fine=True)


@pytest.mark.parametrize("route", JSON_BODIES, ids=" ".join)
def test_a_hostile_item_is_a_problem(world, route):
    body = TABLE[route].body(world)
    for name, holed in with_a_hole(body):
        for value in VALUES:
            content = json.dumps(holed).encode().replace(b'"HOLE"', value)
            answer = ask(world, route, content=content)
            assert_a_problem(answer, (name, value[:40]), or_fine=value not in NEVER)


def with_a_hole(body):
    """Return the document once for each item, inner ones included, which is left open."""
    for name, item in body.items():
        yield name, {**body, name: "HOLE"}
        if isinstance(item, dict):
            for inner, holed in with_a_hole(item):
                yield f"{name}.{inner}", {**body, name: holed}


KINDS_OF_BODY = [
    None,
    "text/plain",
    "application/xml",
    "multipart/form-data; boundary=x",
    "multipart/form-data",
    "application/x-www-form-urlencoded",
    "application/json; charset=utf-16",
    "/",
    "x" * 5000,
    "application/octet-stream",
]


@pytest.mark.parametrize("route", BODIES, ids=" ".join)
def test_another_kind_of_body_is_a_problem(one_world, route):
    for kind in KINDS_OF_BODY:
        for content in (b'{"a":1}', b"--x\r\n\r\n", b"a=1", b"\xff\xfe"):
            answer = ask(one_world, route, content=content, kind=kind)
            assert_a_problem(answer, (kind, content))


def test_an_invalid_update_is_a_problem(world):
    route = ("PUT", "/v1/tasks/{task}/rounds/{number}/update")
    good = world.update()
    nan = b"\x00\x00\x00\x00\x00\x00\xf8\x7f"
    for content in (
        b"",
        good[:-1],
        good + b"\x00",
        nan + good[8:],
        b"\x00\x00\x00\x00\x00\x00\xf0\x7f" + good[8:],
        b"\xff\xff\xff\xff\xff\xff\xef\x7f" * 3,
        b"\x00" * len(good),
        b"x" * 8_004_096,
        b"x" * 10_000_000,
    ):
        answer = ask(world, route, content=content, kind="application/octet-stream")
        assert_a_problem(answer, content[:40])
        assert answer.status_code in (413, 422)


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_hostile_headers_and_methods_are_a_problem_at_most(one_world, route):
    world = one_world
    for headers in (
        [("x-long", "x" * 100_000)],
        [(f"x-{i}", "1") for i in range(2000)],
        [("host", "a b")],
        [("host", "")],
        [("host", "market/paid#")],
        [("host", "a\x80b".encode("latin-1"))],
        [("host", "one"), ("host", "two")],
        [("idempotency-key", "one-more-key")],
        [("last-event-id", "-7")],
        [("last-event-id", "1e9")],
        [("content-length", "-1")],
        [("content-length", "9" * 100)],
        [("accept", "\xff\xfe".encode("latin-1"))],
        [("signature-input", "x" * 100_000), ("signature", "y")],
        [("authorization", b"Bearer \xff")],
        [("cookie", "a=" + "b" * 10_000)],
    ):
        answer = ask(world, route, headers=headers, content=b"[")
        assert_a_problem(answer, headers[0], or_fine=route[0] in ("GET", "DELETE"))
    for method in ("HEAD", "OPTIONS", "TRACE", "PATCH", "PROPFIND", "G\x00T", "X" * 5000):
        answer = ask(world, route, method=method)
        assert answer.status_code in (404, 405, 422, 401), (method, answer.status_code)
        if method != "HEAD":
            assert_a_problem(answer, method)


TRICKS = [
    "..",
    "%2e%2e",
    "%2E%2E%2Ftokens",
    "%00",
    "%2f",
    "%5c",
    "%c0%af",
    "%ff",
    "%ED%A0%80",
    "%F0%9F%98%80",
    "%",
    "%zz",
    "a;b",
    "a%3fb",
    "a%23b",
    "%0d%0aSet-Cookie:x",
    "%20",
    "x" * 50_000,
    "018F0C3E9A5B7D2C4E6F8A1B",
    "018f0c3e9a5b7d2c4e6f8a1b%0a",
    "0" * 24,
    "-1",
    "1e9",
    "9" * 5000,
    "%D9%A3",
    "' OR 1=1 --",
    "owner:*",
    "escrow:" + "0" * 24,
    "outside",
]
WITH_PARTS = [route for route in ROUTES if "{" in route[1]]


@pytest.mark.parametrize("route", WITH_PARTS, ids=" ".join)
def test_tricks_in_a_path_are_a_problem(world, route):
    for trick in TRICKS:
        for name in ("{task}", "{number}", "{party}", "{id}"):
            if name not in route[1]:
                continue
            path = route[1].replace(name, trick).replace("{task}", world.training.id)
            path = path.replace("{number}", "0")
            answer = ask(world, route, path=path, content=b"{}")
            assert_a_problem(answer, path[:200], or_fine=lawful(route, trick))
    for path in (route[1] + "/", "/" + route[1], route[1].replace("/v1", "/v1/."), "/v1/%"):
        assert ask(world, route, path=path).status_code < 500


def lawful(route, trick):
    """Say whether a trick leads to an address that is good after all."""
    return trick in ("..", "%2e%2e", "%", "outside", "0" * 24, "a%3fb")


QUERIES = [
    "limit=-1",
    "limit=0",
    "limit=1001",
    "limit=1e9",
    "limit=abc",
    "limit=" + "9" * 10_000,
    "limit=",
    "limit=1&limit=abc",
    "limit=NaN",
    "limit=%00",
    "after=-2",
    "after=abc%00",
    "after=%ff",
    "after=" + "9" * 30,
    "after=" + "x" * 101,
    "after=%ED%A0%80",
    "before=x",
    "before=%00",
    "before=" + "0" * 25,
    "state=nothing",
    "state=draft%00",
    "state=",
]
LISTS = [route for route in ROUTES if route[0] == "GET"]


@pytest.mark.parametrize("route", LISTS, ids=" ".join)
def test_rubbish_in_a_query_is_a_problem_at_most(world, route):
    document = world.app.openapi()["paths"][route[1]]["get"]
    parameters = {each["name"] for each in document.get("parameters", ()) if each["in"] == "query"}
    for query in [*QUERIES, "&&&&", "=", "%", "a" * 60_000, "x[]=1&x[y]=2", ";", "%00=%00"]:
        answer = ask(world, route, path=f"{TABLE[route].path(world)}?{query}")
        # An empty cursor of names is the beginning.
        fine = query.partition("=")[0] not in parameters or query in ("limit=1&limit=abc",)
        names = (
            "list_allocations",
            "list_kept_updates",
            "list_accounts",
            "list_updates",
            "list_tokens",
            "show_monitoring",
        )
        by_name = document["operationId"] in names
        fine = fine or (by_name and query in ("after=-2", "after=" + "9" * 30))
        assert_a_problem(answer, query[:60], or_fine=fine)


def test_rubbish_on_the_wire_is_refused_by_the_server(one_world):
    """Below HTTP: the server answers or hangs up, and goes on."""
    with served(one_world.app) as url:
        place = ("127.0.0.1", int(url.rpartition(":")[2]))
        for content in (
            b"\x00" * 1000,
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET /v1/market HTTP/1.1\r\n\r\n",
            b"GET /v1/market HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            b"GET /v1/market HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
            b"POST /v1/tasks HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST /v1/tasks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"POST /v1/tasks HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        ):
            with socket.create_connection(place, timeout=10) as wire:
                try:
                    wire.sendall(content)
                    wire.shutdown(socket.SHUT_WR)
                    found = wire.recv(65536)
                except ConnectionError:
                    found = b""
            assert not found.startswith(b"HTTP/1.1 5"), (content[:60], found)
        with socket.create_connection(place, timeout=10) as wire:
            wire.sendall(b"GET /v1/health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert wire.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.fixture(scope="module")
def operations(world):
    """Return the operations of the whole document."""
    loaded = schemathesis.openapi.from_asgi("/v1/openapi.json", world.app)
    loaded.app = world.proving
    found = {}
    for result in loaded.get_all_operations():
        operation = result.ok()
        found[operation.method.upper(), operation.path] = operation
    assert set(found) == set(TABLE)
    return found


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
@pytest.mark.filterwarnings("default")
def test_what_the_document_allows_and_forbids_is_answered_as_it_says(
    world, operations, route, mode
):
    operation = operations[route]
    modes = [schemathesis.GenerationMode(mode)]
    if mode == "negative" and not list(operation.iter_parameters()) and not operation.body:
        return
    cases = operation.as_strategy(generation_mode=modes[0])
    real = dict(zip(parts(route[1]), parts(TABLE[route].path(world)), strict=True))

    @settings(
        max_examples=EXAMPLES,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, at_home=st.booleans(), known=st.sampled_from([True, True, True, False]))
    def hold(case, at_home, known):
        if at_home or (mode == "negative" and route[1].endswith("/stream")):
            for name in case.path_parameters or {}:
                case.path_parameters[name] = real[f"{{{name}}}"]
        world.proving.person = person_of(world, TABLE[route].by) if known else None
        answer = case.call()
        case.validate_response(answer, checks=CHECKS)

    hold()


def parts(path):
    return path.split("/")
