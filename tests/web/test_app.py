"""The application as a whole: every layer of it in its place."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fastapi import APIRouter

from fedbourse.market.service import Market
from fedbourse.protocol.connection import Connection
from fedbourse.protocol.keys import SigningKey
from fedbourse.web.app import create_app
from fedbourse.web.bodies import Body
from fedbourse.web.context import enrol
from fedbourse.web.dependencies import (  # noqa: TC001 - FastAPI reads them
    AuthenticatedDep,
    ContextDep,
    RequestDep,
    ServiceDep,
)
from fedbourse.web.settings import Settings
from fedbourse.web.strict_route import StrictRoute
from web.clients import TestClient
from web.people import NOW, Clock, NoPayments, Phone, asks, bearer, token
from web.servers import served

KEY = SigningKey.generate()


class Note(Body):
    text: str


class NewDevice(Body):
    public_key: str


def toy_routes():
    router = APIRouter(prefix="/v1", route_class=StrictRoute)

    @router.get("/who")
    def who(context: ContextDep):
        return context.read(lambda view: {"party": view.caller and view.caller.party})

    @router.get("/mine")
    def participation(context: AuthenticatedDep):
        return context.read(
            lambda view: {"party": view.authenticated.party, "device": view.authenticated.device}
        )

    @router.post("/notes")
    def note(context: AuthenticatedDep, body: Note):
        return context.write(lambda tx, caller: {"text": body.text}, status=201)

    @router.put("/tasks/{task}/rounds/{number}/update")
    def update(context: AuthenticatedDep, task: str, number: int):
        return context.write(lambda tx, caller: {"bytes": len(context.request.body)})

    @router.post("/enrolments")
    def enrolment(request: RequestDep, service: ServiceDep, body: NewDevice):
        return enrol(service, request, body.public_key, lambda tx, device: {"device": device})

    return router


def app_of(store, clock=None, **settings):
    app = create_app(
        Market(KEY, now_ms=clock or Clock()), store, NoPayments(), Settings(**settings)
    )
    real = len(app.router.routes)
    app.include_router(toy_routes())
    # Before the real ones, some of whose addresses they take.
    app.router.routes[:] = app.router.routes[real:] + app.router.routes[:real]
    return app


@pytest.fixture
def client(store):
    with TestClient(app_of(store)) as client:
        yield client


def send(client, request):
    target = request.path + (f"?{request.query}" if request.query else "")
    return client.request(request.method, target, headers=request.headers, content=request.body)


def know(store, *people):
    with store.begin() as tx:
        for person in people:
            if isinstance(person, Phone):
                tx.put_device(person.device)
            else:
                tx.add_token(person)


def note(text="hello", key="key-00001"):
    body = f'{{"text":"{text}"}}'.encode()
    headers = [("content-type", "application/json"), ("idempotency-key", key)]
    return asks("POST", "/v1/notes", headers=headers, body=body)


def test_anybody_learns_which_market_this_is(client):
    assert client.get("/v1/health").json() == {"status": "ok"}
    facts = client.get("/v1/market").json()
    assert facts["public_key"] == KEY.public
    assert facts["limits"]["json_bytes_max"] == 2**20


def test_a_stranger_is_nobody_and_a_claim_must_be_proved(client, store):
    know(store, token("a"))
    assert client.get("/v1/who").json() == {"party": None}
    assert client.get("/v1/mine").status_code == 401
    assert client.get("/v1/who", headers=[bearer("z")]).status_code == 401
    assert client.get("/v1/who", headers=[bearer("a")]).json() == {"party": "buyer:acme"}


def test_a_signed_request_is_accepted_once(client, store):
    phone = Phone()
    know(store, phone)
    read, write = phone.sign(asks(path="/v1/mine", query="a=%2F")), phone.sign(note())
    assert send(client, read).json() == {"party": "owner:ann", "device": phone.device.id}
    assert send(client, read).status_code == 401
    assert send(client, write).status_code == 201
    assert send(client, write).status_code == 401
    again = send(client, phone.sign(note()))
    assert (again.status_code, again.headers["idempotency-replayed"]) == (201, "true")


def test_a_changed_body_under_the_same_key_is_refused(client, store):
    know(store, token("a"))
    headers = [bearer("a"), ("idempotency-key", "key-00001")]
    assert client.post("/v1/notes", json={"text": "a"}, headers=headers).status_code == 201
    refused = client.post("/v1/notes", json={"text": "b"}, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (409, "Conflict")


def test_a_write_without_a_key_is_refused(client, store):
    know(store, token("a"))
    refused = client.post("/v1/notes", json={"text": "a"}, headers=[bearer("a")])
    assert (refused.status_code, refused.json()["code"]) == (422, "InvalidInput")


def test_a_stranger_is_not_told_what_is_wrong_with_its_body(client):
    assert client.post("/v1/notes", json={"no": 1}).status_code == 401


def test_a_new_device_signs_with_the_key_that_it_brings(client):
    phone, other = Phone(), Phone()
    headers = [("content-type", "application/json"), ("idempotency-key", "enrol-0001")]

    def request_of(public):
        body = f'{{"public_key":"{public}"}}'.encode()
        return asks("POST", "/v1/enrolments", headers=headers, body=body)

    assert send(client, phone.sign(request_of(other.key.public))).status_code == 401
    assert send(client, request_of(phone.key.public)).status_code == 401
    assert send(client, phone.sign(request_of("rubbish"))).status_code == 422
    request = phone.sign(request_of(phone.key.public))
    done = send(client, request)
    assert (done.status_code, done.json()) == (201, {"device": phone.device.id})
    assert send(client, request).status_code == 401


def test_a_caller_in_haste_is_told_to_wait(store):
    know(store, token("a"))
    with TestClient(app_of(store, caller_burst=2, caller_per_s=0.001)) as client:
        responses = [client.get("/v1/who", headers=[bearer("a")]) for _ in range(3)]
        assert [answer.status_code for answer in responses] == [200, 200, 429]
        assert responses[-1].headers["retry-after"]
        assert client.get("/v1/who").status_code == 200


def test_a_peer_in_haste_is_told_to_wait(store):
    with TestClient(app_of(store, peer_burst=2, peer_per_s=0.001)) as client:
        assert [client.get("/v1/market").status_code for _ in range(3)] == [200, 200, 429]


def test_a_body_too_large_is_refused_also_without_a_length(client, store):
    phone = Phone()
    know(store, token("a"), phone)
    headers = [bearer("a"), ("idempotency-key", "key-00001")]
    big = b"x" * 10_000_000
    for content in (big, iter([big[:1_000_000]] * 10)):
        refused = client.post("/v1/notes", content=content, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (413, "TooLarge")
    path = "/v1/tasks/t/rounds/0/update"
    good = asks("PUT", path, headers=headers[1:], body=big[:8_000_000])
    assert send(client, replace(good, headers=tuple(headers))).status_code == 413
    assert send(client, phone.sign(good)).json() == {"bytes": 8_000_000}
    assert send(client, phone.sign(replace(good, body=big))).status_code == 413


def test_the_pages_that_load_scripts_from_elsewhere_are_off(client):
    for path in ("/docs", "/redoc", "/v1/docs", "/openapi.json"):
        assert client.get(path).status_code == 404


def test_every_operation_documents_its_errors(client):
    document = client.get("/v1/openapi.json").json()
    assert set(document["components"]["securitySchemes"]) == {"token", "signature"}
    operations = [each for path in document["paths"].values() for each in path.values()]
    assert len(operations) >= 7
    for operation in operations:
        assert operation["operationId"]
        assert operation["responses"]["4XX"] == {"$ref": "#/components/responses/Problem"}
        assert "422" not in operation["responses"]
    assert "HTTPValidationError" not in document["components"]["schemas"]
    parameters = document["paths"]["/v1/notes"]["post"]["parameters"]
    assert "idempotency-key" in {each["name"] for each in parameters}


def test_the_client_and_the_service_understand_each_other(store):
    phone = Phone()
    know(store, phone, token("a"))
    clock = Clock()
    with served(app_of(store, clock)) as url:
        with Connection(url, key=phone.key, market_key=KEY.public, now_ms=clock) as device:
            assert device.check_market()["public_key"] == KEY.public
            challenge = device.get("/v1/market", {"challenge": "0" * 32})
            assert challenge["proof"] != device.get("/v1/market", {"challenge": "1" * 32})["proof"]
            assert device.get("/v1/market")["proof"] is None
            assert device.get("/v1/mine", {"a": "é /?#"})["party"] == "owner:ann"
            assert device.post("/v1/notes", {"text": "é"}) == {"text": "é"}
            path = "/v1/tasks/t/rounds/0/update"
            assert device.put_bytes(path, bytes(8_000_000)) == {"bytes": 8_000_000}
        from fedbourse.errors import TooLarge, Unauthenticated

        with Connection(url, key=phone.key, now_ms=lambda: NOW - 61_000) as late:
            with pytest.raises(Unauthenticated, match="clock"):
                late.get("/v1/mine")
            with pytest.raises(TooLarge):
                late.post("/v1/notes", {"text": "x" * 10_000_000})
