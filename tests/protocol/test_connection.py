"""The client: whom it talks to, how it repeats itself, and what it makes of answers."""

from __future__ import annotations

import itertools
import json

import httpx2
import pytest

from fedbourse import errors
from fedbourse.encoding.canonical import canonical
from fedbourse.errors import (
    Conflict,
    FedbourseError,
    InvalidFile,
    InvalidInput,
    ProtocolError,
    Refused,
    Unauthenticated,
    Unreachable,
)
from fedbourse.protocol.connection import Connection
from fedbourse.protocol.keys import SigningKey, key_id
from fedbourse.protocol.signatures import Request, verify_request
from fedbourse.protocol.transport import ATTEMPTS

URL = "https://market.example"
TOKEN = "fbt_" + "a" * 43


class Server:
    """Responds from a list, the last one again and again, and remembers what was requested."""

    def __init__(self, *responses):
        self.responses, self.requests, self.slept = list(responses), [], []

    def __call__(self, request):
        request.read()
        self.requests.append(request)
        response = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        if isinstance(response, Exception):
            raise response
        return response() if callable(response) else response

    def connection(self, url=URL, **options):
        return Connection(
            url, transport=httpx2.MockTransport(self), sleep=self.slept.append, **options
        )


def ok(document=None):
    return lambda: httpx2.Response(200, content=canonical({} if document is None else document))


def problem(status, **members):
    return lambda: httpx2.Response(status, content=json.dumps(members).encode())


@pytest.mark.parametrize(
    "url",
    [
        "http://market.example",
        "http://10.0.0.1:8000",
        "http://127.0.0.1.example",
        "http://localhost.example",
        "http://[2001:db8::1]",
        "http://0.0.0.0",
        "http://user@127.0.0.1",
        "ftp://127.0.0.1",
        "market.example",
        "",
        "https://",
        "https://market.example/path",
        "https://market.example?x=1",
        "https://market.example:99999",
        "https://[::1",
    ],
)
def test_an_address_that_is_not_safe_is_refused(url):
    with pytest.raises(InvalidInput):
        Connection(url, token=TOKEN)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000", "http://127.8.9.1", "http://[::1]:80", "http://localhost", URL]
)
def test_plain_http_is_for_this_machine(url):
    Connection(url, token=TOKEN).close()


def test_a_proxy_of_the_environment_never_sees_plain_http(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    with Connection("http://127.0.0.1:9") as connection:
        assert not connection._client._mounts


def test_a_token_and_a_key_exclude_each_other():
    with pytest.raises(InvalidInput, match="both"):
        Connection(URL, token=TOKEN, key=SigningKey.generate())
    with pytest.raises(InvalidInput, match="printable"):
        Connection(URL, token="a\r\nHost: x")


def test_a_ca_file_that_is_none_is_named(tmp_path):
    with pytest.raises(InvalidFile, match="ca"):
        Connection(URL, ca_file=str(tmp_path / "ca.pem"))


def test_a_token_is_sent_as_a_bearer():
    server = Server(ok({"a": 1}))
    with server.connection(token=TOKEN) as connection:
        assert connection.get("/v1/tasks", {"state": "open", "before": None}) == {"a": 1}
    (request,) = server.requests
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert str(request.url) == f"{URL}/v1/tasks?state=open"
    assert "idempotency-key" not in request.headers


@pytest.mark.parametrize("url", [URL, "http://127.0.0.1:8123", "http://[::1]:8123"])
def test_every_request_of_a_device_is_signed_afresh(url):
    key = SigningKey.generate()
    server = Server(httpx2.ConnectError("gone"), ok())
    with server.connection(url, key=key, now_ms=lambda: 1_900_000_000_000) as connection:
        connection.put("/v1/tasks/t/plan", {"budget": 0.5})
        connection.get("/v1/tasks", {"state": "é /", "limit": 3})
        connection.put_bytes("/v1/tasks/t/rounds/0/update", b"\x00\xff")
        connection.post("/v1/tasks/t/open")
    nonces = set()
    for sent in server.requests:
        path, _, query = sent.url.raw_path.decode().partition("?")
        request = Request(
            sent.method,
            sent.url.scheme,
            sent.headers["host"],
            path,
            query,
            tuple(sent.headers.items()),
            sent.content,
        )
        found = verify_request(
            request,
            lambda device: key.public if device == key_id(key.public) else None,
            now_ms=1_900_000_000_000,
        )
        nonces.add(found.nonce)
    assert len(nonces) == len(server.requests) == 5


@pytest.mark.parametrize(
    "fault",
    [
        httpx2.ConnectError("refused"),
        httpx2.ReadTimeout("slow"),
        httpx2.RemoteProtocolError("closed"),
        lambda: httpx2.Response(502),
        lambda: httpx2.Response(503),
        lambda: httpx2.Response(504),
    ],
)
def test_a_write_without_an_answer_is_repeated_with_its_key(fault):
    server = Server(fault, fault, ok({"done": True}))
    with server.connection() as connection:
        assert connection.post("/v1/deposits", {"reference": "r"}) == {"done": True}
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 1
    assert len({request.content for request in server.requests}) == 1
    assert len(server.requests) == 3
    assert len(server.slept) == 2


def test_different_writes_have_different_keys():
    server = Server(ok())
    with server.connection() as connection:
        connection.post("/v1/deposits", {"reference": "r"})
        connection.delete("/v1/tokens/t")
        connection.put("/v1/x", {}, idempotency_key="my-own-key")
    keys = [request.headers["idempotency-key"] for request in server.requests]
    assert len(set(keys)) == 3
    assert keys[2] == "my-own-key"


def test_attempts_are_bounded():
    server = Server(httpx2.ConnectError("refused"))
    with server.connection() as connection, pytest.raises(Unreachable, match="refused"):
        connection.post("/v1/deposits", {})
    assert len(server.requests) == ATTEMPTS


def test_an_answered_refusal_is_not_repeated():
    server = Server(problem(409, code="Conflict", detail="the task is open"))
    with server.connection() as connection, pytest.raises(Conflict, match="the task is open"):
        connection.post("/v1/tasks/t/open")
    assert len(server.requests) == 1


KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, FedbourseError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_each_problem_becomes_its_error(kind):
    server = Server(problem(400, code=kind.__name__, detail="because", reason="rule"))
    with server.connection() as connection, pytest.raises(kind, match="because") as refused:
        connection.get("/v1/market")
    assert type(refused.value) is kind
    if isinstance(refused.value, Refused):
        assert refused.value.reason == "rule"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'"x"',
        b'{"code": "Exception", "detail": "x"}',
        b'{"code": "Conflict"}',
        b'{"detail": 3, "code": "Conflict"}',
        b'{"code": ["a"], "detail": "x"}',
        b"\xff",
        b"[" * 10**5,
    ],
)
def test_an_error_that_is_no_problem_gets_one_sentence(body):
    server = Server(lambda: httpx2.Response(418, content=body))
    with server.connection() as connection, pytest.raises(ProtocolError, match="418"):
        connection.get("/v1/market")


def test_a_problem_cannot_write_to_the_terminal():
    server = Server(problem(409, code="Conflict", detail="a\x1b[2Jb\nc"))
    with server.connection() as connection, pytest.raises(Conflict) as refused:
        connection.get("/v1/market")
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_never_followed(status):
    headers = {"location": "https://elsewhere.example/"}
    server = Server(lambda: httpx2.Response(status, headers=headers))
    with (
        server.connection(token=TOKEN) as connection,
        pytest.raises(ProtocolError, match="elsewhere"),
    ):
        connection.post("/v1/deposits", {})
    assert len(server.requests) == 1


@pytest.mark.parametrize("body", [b"<html>", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"\xff"])
def test_an_answer_that_is_no_json_gets_one_sentence(body):
    server = Server(lambda: httpx2.Response(200, content=body))
    with (
        server.connection() as connection,
        pytest.raises(ProtocolError, match="an invalid document"),
    ):
        connection.get("/v1/market")


def test_an_answer_is_read_only_so_far():
    read = []

    def endless():
        for _ in range(1000):
            read.append(1)
            yield bytes(2**20)

    server = Server(lambda: httpx2.Response(200, content=endless()))
    with server.connection() as connection:
        with pytest.raises(ProtocolError, match="bytes"):
            connection.get("/v1/market")
        with pytest.raises(ProtocolError, match="3000000 bytes"):
            connection.get_bytes("/v1/model", at_most=3_000_000)
    assert len(read) < 30


def test_an_answer_that_drips_is_given_up():
    minutes = itertools.count()
    drops = (b"x" for _ in range(10**6))
    server = Server(lambda: httpx2.Response(200, content=drops))
    connection = server.connection(now_ms=lambda: 30_000 * next(minutes))
    with connection, pytest.raises(Unreachable, match="too slowly: 3 bytes so far"):
        connection.get_bytes("/v1/market")


def test_a_compressed_answer_is_refused():
    headers = {"content-encoding": "gzip"}
    server = Server(lambda: httpx2.Response(200, headers=headers, content=iter([b"\x1f\x8b"])))
    with server.connection() as connection, pytest.raises(ProtocolError, match="compressed"):
        connection.get_bytes("/v1/model")
    assert server.requests[0].headers["accept-encoding"] == "identity"


def test_a_market_with_another_key_is_refused():
    pinned, other = SigningKey.generate(), SigningKey.generate()
    for shown in (other.public, None, 3, [pinned.public]):
        server = Server(ok({"public_key": shown}))
        with (
            server.connection(market_key=pinned.public) as connection,
            pytest.raises(Unauthenticated, match="expect"),
        ):
            connection.check_market()
    for proof in (None, 3, "", other.sign(b"something")):
        server = Server(ok({"public_key": pinned.public, "proof": proof}))
        with (
            server.connection(market_key=pinned.public) as connection,
            pytest.raises(Unauthenticated, match="does not prove that it holds it"),
        ):
            connection.check_market()
    with Server(ok({"public_key": other.public})).connection() as connection:
        assert connection.check_market()["public_key"] == other.public  # none is expected


def test_a_document_that_the_market_did_not_sign_is_refused():
    pinned = SigningKey.generate()
    terms = {"rho": 0.5}
    with Server(ok()).connection(market_key=pinned.public) as connection:
        connection.check_signed(terms, pinned.sign(canonical(terms)))
        for document, signature in (
            ({"rho": 0.6}, pinned.sign(canonical(terms))),
            (terms, SigningKey.generate().sign(canonical(terms))),
            (terms, "rubbish"),
        ):
            with pytest.raises(Unauthenticated):
                connection.check_signed(document, signature)
    with Server(ok()).connection() as connection, pytest.raises(InvalidInput):
        connection.check_signed(terms, pinned.sign(canonical(terms)))


def stream(*sequences, fault=None):
    def parts():
        for sequence in sequences:
            data = json.dumps({"sequence": sequence, "kind": "opened"})
            yield f": ping\n\nid: {sequence}\nevent: opened\ndata: {data}\n\n".encode()
        if fault is not None:
            raise fault

    headers = {"content-type": "text/event-stream"}
    return lambda: httpx2.Response(200, headers=headers, content=parts())


def test_a_stream_is_taken_up_where_it_broke_off():
    server = Server(
        stream(0, 1, fault=httpx2.ReadError("broken")),
        httpx2.ConnectError("refused"),
        stream(2),
        lambda: httpx2.Response(503),
        stream(3, 4),
        lambda: httpx2.Response(204),
    )
    with server.connection() as connection:
        assert [e["sequence"] for e in connection.events("/v1/tasks/t/stream")] == [0, 1, 2, 3, 4]
    starts = [request.headers["last-event-id"] for request in server.requests]
    assert starts == ["-1", "1", "1", "2", "2", "4"]


def test_a_stream_that_never_works_ends_with_one_sentence():
    for reply, error in (
        (httpx2.ConnectError("refused"), Unreachable),
        (stream(), Unreachable),
        (ok({}), Unreachable),
        (stream(-1), ProtocolError),
    ):
        server = Server(reply)
        with server.connection() as connection, pytest.raises(error):
            list(connection.events("/v1/tasks/t/stream"))
        assert len(server.requests) <= ATTEMPTS


def test_a_stream_that_is_refused_says_why():
    server = Server(problem(404, code="NotFound", detail="there is no task t"))
    with server.connection() as connection, pytest.raises(errors.NotFound, match="no task t"):
        list(connection.events("/v1/tasks/t/stream"))
    assert len(server.requests) == 1


def test_a_path_cannot_lead_elsewhere():
    with Server(ok()).connection(token=TOKEN) as connection:
        for path in ("//evil.example/x", "https://evil.example/", "v1/market", ""):
            with pytest.raises(InvalidInput):
                connection.get(path)
