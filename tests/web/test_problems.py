"""Errors of every origin are problems (RFC 9457), without anything of the inside."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Annotated

import pytest
from fastapi import APIRouter, FastAPI, Query

from fedbourse import errors
from fedbourse.errors import FedbourseError, Refused
from fedbourse.web import problems
from fedbourse.web.bodies import Body
from fedbourse.web.limits import SecurityHeaders
from fedbourse.web.problems import LastResort, add_problem_handlers
from fedbourse.web.strict_route import StrictRoute
from web.clients import TestClient

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, FedbourseError)
]
SECRET = "password-of-the-database"


class Sum(Body):
    amount: int
    share: float = 0.0
    name: str = ""


def toy():
    router = APIRouter(route_class=StrictRoute)

    @router.get("/fail/{name}")
    def fail(name: str) -> None:
        kind = getattr(errors, name)
        raise Refused("rule", "because") if kind is Refused else kind("because")

    @router.get("/crash")
    def crash() -> None:
        raise RuntimeError(SECRET)

    @router.post("/sum")
    def take(body: Sum, limit: Annotated[int, Query(le=10)] = 1) -> Sum:
        return body

    app = FastAPI(docs_url=None, redoc_url=None, redirect_slashes=False)
    app.include_router(router)
    add_problem_handlers(app)
    app.add_middleware(LastResort)
    app.add_middleware(SecurityHeaders)
    return TestClient(app)


@pytest.fixture(scope="module")
def client():
    with toy() as client:
        yield client


def is_problem(answer, status, code):
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert {"type", "title", "status", "detail", "code"} <= set(document)
    assert (document["status"], document["code"]) == (status, code)
    assert document["detail"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    return document


@pytest.mark.parametrize("kind", KINDS)
def test_each_error_is_answered_with_its_status_and_name(client, kind):
    document = is_problem(client.get(f"/fail/{kind.__name__}"), kind.http_status, kind.__name__)
    inside = kind in (errors.Unreachable, errors.CannotWrite)  # those name the database's place
    assert (document["detail"] == "because") is not inside
    assert "because" not in document["detail"] or not inside
    assert document.get("reason") == ("rule" if kind is Refused else None)


def test_a_refused_proof_says_which_one_is_wanted(client):
    assert client.get("/fail/Unauthenticated").headers["www-authenticate"].startswith("Bearer")


def test_an_unknown_address_and_method_are_problems(client):
    is_problem(client.get("/nowhere"), 404, "NotFound")
    answer = client.post("/crash")
    is_problem(answer, 405, "NotFound")
    assert answer.headers["allow"] == "GET"
    is_problem(client.get("/crash/"), 404, "NotFound")


def test_the_unexpected_is_logged_and_not_shown(client, caplog):
    with caplog.at_level(logging.ERROR, logger="fedbourse.web"):
        answer = client.get("/crash")
    is_problem(answer, 500, "FedbourseError")
    assert SECRET not in answer.text
    assert "Traceback" not in answer.text
    assert SECRET in caplog.text


def test_one_fault_is_written_once_a_minute_with_how_often_it_came(caplog, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(problems, "time", SimpleNamespace(monotonic=lambda: now))
    with toy() as client, caplog.at_level(logging.ERROR, logger="fedbourse.web"):
        for _ in range(50):
            assert client.get("/crash").status_code == 500
        assert len(caplog.records) == 1
        now += 61
        client.get("/crash")
    assert len(caplog.records) == 2
    assert "and 49 times since it was last logged" in caplog.text


def test_of_many_kinds_of_faults_few_are_remembered():
    faults = problems.Faults(kinds_max=3)
    for number in range(10):
        faults.note(type(f"Fault{number}", (Exception,), {})(), "GET /")
    assert len(faults._logged) == 3


HOSTILE = {
    "nan": b'{"amount": 1, "share": NaN}',
    "infinity": b'{"amount": 1, "share": Infinity}',
    "overflow": b'{"amount": 1, "share": 1e999}',
    "10^4 digits": b'{"amount": ' + b"9" * 10_000 + b"}",
    "deep": b'{"amount": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "duplicate": b'{"amount": 1, "amount": 2}',
    "text for a number": b'{"amount": "1"}',
    "fraction for a whole": b'{"amount": 1.5}',
    "whole float": b'{"amount": 1.0}',
    "truth for a number": b'{"amount": true}',
    "null": b'{"amount": null}',
    "list": b"[]",
    "text": b'"x"',
    "unknown item": b'{"amount": 1, "extra": "' + b"x" * 5000 + b'"}',
    "long unknown key": b'{"amount": 1, "' + b"x" * 5000 + b'": 1}',
    "number for a text": b'{"amount": 1, "name": 3}',
    "surrogate": b'{"amount": 1, "name": "\\ud800"}',
    "nul": b'{"amount": 1, "name": "\\u0000"}',
    "no utf-8": b'{"amount": 1, "name": "\xff"}',
    "nothing": b"",
    "no json": b"amount=1",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_body_gets_one_sentence_without_its_content(client, name):
    answer = client.post(
        "/sum", content=HOSTILE[name], headers={"content-type": "application/json"}
    )
    document = is_problem(answer, 422, "InvalidInput")
    assert len(document["detail"]) < 700
    assert "x" * 300 not in answer.text
    json.loads(answer.content, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "kind", ["text/plain", "", "application/x-www-form-urlencoded", "é/é", ";"]
)
def test_a_body_that_does_not_say_it_is_json_is_refused(client, kind):
    headers = {"content-type": kind.encode()} if kind else {}
    answer = client.post("/sum", content=b'{"amount": 1}', headers=headers)
    is_problem(answer, 422, "InvalidInput")


@pytest.mark.parametrize("limit", ["11", "x", "", "1e999", "9" * 5000, "NaN"])
def test_a_hostile_query_gets_one_sentence(client, limit):
    is_problem(
        client.post("/sum", params={"limit": limit}, json={"amount": 1}), 422, "InvalidInput"
    )


def test_a_proper_body_passes(client):
    answer = client.post("/sum", json={"amount": 10**17, "share": 1, "name": "é"})
    assert answer.json() == {"amount": 10**17, "share": 1.0, "name": "é"}
