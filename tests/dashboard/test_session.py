"""Sessions: what a cookie is good for, and for how long."""

from __future__ import annotations

import html
import re
import time
from dataclasses import replace
from typing import Annotated

import pytest
from fastapi import APIRouter, Depends

from fedbourse.dashboard import page_context, problem_pages, session
from fedbourse.dashboard.forms import Form
from fedbourse.dashboard.page_context import AuthenticatedPageContext, SignedIn, signed_in
from fedbourse.dashboard.pages import HEADERS, POLICY, form_fields, page, redirect
from fedbourse.market.commands.access import hash_of
from fedbourse.market.service import Market
from fedbourse.protocol.keys import SigningKey
from fedbourse.web.limits import Buckets
from fedbourse.web.writes import carry_out
from web.fixtures import dump

LIFE_MS = session.LIFE_S * 1000
SPARE = "http://testserver"


class Note(Form):
    text: str
    count: int = 1


@pytest.fixture
def notes(town):
    """Routes that write, as pages of other modules do, and what they have written."""
    router, written = APIRouter(), []

    @router.get("/test/form")
    def show(context: SignedIn):
        answer = page(context, "problem.html", title="form", sentence="x")
        answer.body += str(form_fields(context)).encode()
        answer.headers["content-length"] = str(len(answer.body))
        return answer

    @router.post("/test/notes")
    def note(context: Annotated[AuthenticatedPageContext, Depends(signed_in("buyer"))]):
        form = context.form(Note)

        def command(tx, caller):
            written.append(form.text)
            return {"text": form.text, "by": caller.party}

        return redirect(f"/{context.write(command)['text']}")

    @router.get("/test/broken")
    def broken(context: SignedIn):
        raise RuntimeError("a secret of the inside")

    town.app.include_router(router)
    return written


def hidden(client):
    text = client.get("/test/form").text
    return dict(re.findall(r'name="(csrf|key)" value="([^"]*)"', text)[-2:])


def signed(client):
    return client.get("/test/form").status_code == 200


def set_cookie(client, town, value):
    client.cookies.clear()
    client.cookies.set(town.cookie, value, domain="testserver.local")


def test_a_session_holds_no_token_and_nothing_else_reads_it(client, town, notes):
    answer = town.sign_in(client, town.buyer)
    (cookie,) = answer.headers.get_list("set-cookie")
    assert town.buyer.token not in cookie
    for part in ("HttpOnly", "SameSite=strict", "Path=/", f"Max-Age={session.LIFE_S}"):
        assert part in cookie
    assert "Secure" not in cookie
    assert signed(client)


def test_over_https_the_cookie_is_for_this_host_alone(town, notes):
    from web.clients import TestClient

    with TestClient(town.app, base_url="https://testserver", follow_redirects=False) as client:
        answer = town.post(client, "/sign-in", origin="https://testserver", token=town.buyer.token)
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-fedbourse-")
        assert "Secure" in cookie
        assert signed(client)


def test_the_api_takes_no_cookie(client, town, notes):
    town.sign_in(client, town.buyer)
    assert client.get("/v1/me").status_code == 401
    answer = client.post("/v1/tasks", json={}, headers={"idempotency-key": "12345678"})
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_session_ends_by_itself(client, town, notes):
    town.sign_in(client, town.buyer)
    town.trading.time_ms += LIFE_MS - 1
    assert signed(client)
    town.trading.time_ms += 1
    assert not signed(client)


def test_a_session_of_the_future_does_not_count(client, town, notes):
    town.sign_in(client, town.buyer)
    town.trading.time_ms -= 1
    assert not signed(client)


def test_a_revoked_token_ends_its_sessions_at_once(client, town, notes):
    town.sign_in(client, town.buyer)
    assert signed(client)
    with town.store.begin() as tx:
        token = tx.token_with(hash_of(town.buyer.token))
        tx.revoke_token(token.id, at_ms=town.market.now_ms())
    assert not signed(client)


def in_between(monkeypatch, what):
    """Let something happen after a visit was let in, and before it writes."""

    def later(*arguments, **options):
        what()
        return carry_out(*arguments, **options)

    monkeypatch.setattr(page_context, "carry_out", later)


def test_what_ends_before_a_write_stops_it(client, town, notes, monkeypatch):
    def revoke():
        with town.store.begin() as tx:
            token = tx.token_with(hash_of(town.buyer.token))
            tx.revoke_token(token.id, at_ms=town.market.now_ms())

    def sign_out():
        id = client.cookies[town.cookie].partition(".")[0]
        with town.store.begin() as tx:
            tx.end_session(id, expires_ms=town.market.now_ms() + LIFE_MS)

    for ends in (sign_out, revoke):
        client.cookies.clear()
        town.sign_in(client, town.buyer)
        fields = hidden(client)
        with monkeypatch.context() as patch:
            in_between(patch, ends)
            refused = town.post(client, "/test/notes", text="too late", **fields)
        assert refused.status_code == 401, ends
        assert not signed(client)
    assert notes == []


def test_a_session_stays_ended_after_what_is_old_was_forgotten(client, town, notes):
    town.sign_in(client, town.buyer)
    copied = client.cookies[town.cookie]
    town.post(client, "/sign-out", csrf=hidden(client)["csrf"])
    town.trading.time_ms += LIFE_MS - 2
    with town.store.begin() as tx:
        tx.purge(now_ms=town.market.now_ms())
    set_cookie(client, town, copied)
    assert not signed(client)


def test_whoever_asks_too_often_waits_but_can_sign_out(client, town, notes):
    town.sign_in(client, town.buyer)
    fields = hidden(client)
    few = Buckets(per_s=1e-3, burst=2, now_s=time.monotonic)
    town.app.state.service = replace(town.app.state.service, callers=few)
    assert [client.get("/buy").status_code for _ in range(3)] == [200, 200, 429]
    assert "asks too often" in client.get("/buy").text
    assert town.post(client, "/sign-out", csrf=fields["csrf"]).headers["location"] == "/"
    client.cookies.clear()
    town.sign_in(client, town.owner)
    assert client.get("/own").status_code == 200


def test_a_form_that_was_sent_is_answered_alike_from_another_session(client, town, notes):
    town.sign_in(client, town.buyer)
    first = hidden(client)
    town.post(client, "/test/notes", text="once", **first)
    client.cookies.clear()
    town.sign_in(client, town.buyer)
    again = hidden(client) | {"key": first["key"]}
    assert again["csrf"] != first["csrf"]
    answer = town.post(client, "/test/notes", text="once", **again)
    assert (answer.status_code, answer.headers["location"]) == (303, "/once")
    assert notes == ["once"]


def test_an_expired_token_ends_its_sessions(client, town, notes):
    brief = town.holder("buyer:brief", "buyer", days=1 / 24)
    assert town.sign_in(client, brief).status_code == 303
    assert signed(client)
    town.trading.time_ms += 3600 * 1000
    assert not signed(client)


@pytest.mark.parametrize("place", range(4))
def test_a_forged_cookie_is_nobodys(client, town, notes, place):
    begun = session.new_session(hash_of(town.buyer.token), now_ms=town.market.now_ms())
    good = session.cookie_value(town.market, begun)
    set_cookie(client, town, good)
    assert signed(client)
    parts = good.split(".")
    parts[place] = parts[place][:-1] + ("1" if parts[place][-1] != "1" else "2")
    set_cookie(client, town, ".".join(parts))
    assert not signed(client)


def test_another_markets_cookie_is_nobodys(client, town, notes):
    begun = session.new_session(hash_of(town.buyer.token), now_ms=town.market.now_ms())
    other = Market(SigningKey.generate(), now_ms=town.market.now_ms)
    set_cookie(client, town, session.cookie_value(other, begun))
    assert not signed(client)


@pytest.mark.parametrize("value", ["", "x", "....", "0" * 5000, "é"])
def test_nonsense_is_nobodys(client, town, notes, value):
    answer = client.get(
        "/test/form", headers={"cookie": f"{town.cookie}={value}".encode("latin-1")}
    )
    assert answer.status_code == 303


def test_of_two_cookies_neither_counts(client, town, notes):
    begun = session.new_session(hash_of(town.buyer.token), now_ms=town.market.now_ms())
    good = f"{town.cookie}={session.cookie_value(town.market, begun)}"
    ask = lambda cookie: client.get("/test/form", headers={"cookie": cookie}).status_code  # noqa: E731
    assert ask(good) == 200
    assert ask(f"{good}; {town.cookie}=x") == 303


def test_a_form_writes_once_however_often_it_is_sent(client, town, notes):
    town.sign_in(client, town.buyer)
    fields = hidden(client)
    for _ in range(3):
        answer = town.post(client, "/test/notes", text="once", **fields)
        assert (answer.status_code, answer.headers["location"]) == (303, "/once")
    assert notes == ["once"]
    changed = town.post(client, "/test/notes", text="other", **fields)
    assert changed.status_code == 409
    assert "text/html" in changed.headers["content-type"]
    assert notes == ["once"]


def test_a_form_without_its_csrf_field_is_refused(client, town, notes):
    town.sign_in(client, town.buyer)
    fields = hidden(client)
    before = dump(town.store)
    for csrf in (
        {},
        {"csrf": ""},
        {"csrf": "0" * 64},
        {"csrf": "é"},
        {"csrf": [fields["csrf"]] * 2},
    ):
        answer = town.post(client, "/test/notes", text="x", key=fields["key"], **csrf)
        assert answer.status_code == 403
        assert "another sign-in" in answer.text
    assert (notes, dump(town.store)) == ([], before)


def test_a_form_of_another_session_is_refused(client, town, notes):
    town.sign_in(client, town.people["another buyer"])
    others = hidden(client)
    town.sign_in(client, town.buyer, csrf=others["csrf"])
    assert town.post(client, "/test/notes", text="x", **others).status_code == 403
    assert notes == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": "https://testserver"},
        {"origin": "http://testserver:81"},
        {"origin": SPARE, "sec-fetch-site": "cross-site"},
        {"origin": SPARE, "sec-fetch-site": "same-site"},
    ],
)
def test_a_form_of_another_page_is_refused(client, town, notes, headers):
    town.sign_in(client, town.buyer)
    data = {"text": "x", **hidden(client)}
    answer = client.post("/test/notes", data=data, headers=headers)
    assert answer.status_code == 403
    assert "not sent by a page of this market" in answer.text
    assert notes == []
    assert client.post("/sign-out", data=data, headers=headers).status_code == 403
    assert signed(client)


def test_a_form_that_is_no_form_is_refused(client, town, notes):
    town.sign_in(client, town.buyer)
    for kind, body in (
        ("application/json", b"{}"),
        ("multipart/form-data; boundary=x", b"--x--"),
        ("application/x-www-form-urlencoded", b"\xff=1"),
        ("application/x-www-form-urlencoded", b"a=%ff"),
        ("application/x-www-form-urlencoded", b"&".join([b"a=1"] * 500)),
    ):
        headers = {"origin": SPARE, "content-type": kind}
        answer = client.post("/test/notes", content=body, headers=headers)
        assert answer.status_code == 422
        assert "text/html" in answer.headers["content-type"]


@pytest.mark.parametrize("sent", ["text=a%00b", "text=a%1Fb", "te%00xt=ab"])
def test_no_form_brings_control_characters_in(client, town, notes, sent):
    town.sign_in(client, town.buyer)
    fields = "&".join(f"{name}={value}" for name, value in hidden(client).items())
    headers = {"origin": SPARE, "content-type": "application/x-www-form-urlencoded"}
    answer = client.post("/test/notes", content=f"{fields}&{sent}", headers=headers)
    assert answer.status_code == 422
    assert "must hold no control characters; found U+00" in answer.text
    assert notes == []
    tame = client.post("/test/notes", content=f"{fields}&text=a%09b%0D%0Ac", headers=headers)
    assert tame.status_code == 303
    assert notes == ["a\tb\r\nc"]


def test_wrong_fields_are_named_in_a_sentence(client, town, notes):
    town.sign_in(client, town.buyer)
    for fields, sentence in (
        ({"text": " "}, "Text: this is needed."),
        ({"text": "x", "count": "many"}, "Count: should be a valid integer"),
        ({"text": "x", "other": "1"}, "Other: the form has no such field."),
        ({"text": ["x", "y"]}, "Text: should be a valid string."),
    ):
        answer = town.post(client, "/test/notes", **fields, **hidden(client))
        assert answer.status_code == 422
        assert sentence in answer.text
    assert notes == []


def test_a_missing_scope_is_said_in_words(client, town, notes):
    town.sign_in(client, town.owner)
    answer = town.post(client, "/test/notes", text="x", **hidden(client))
    assert answer.status_code == 403
    assert "This needs the scope buyer; owner:000000 has owner." in answer.text
    assert "owner:000000" in answer.text  # still signed in
    assert notes == []


def test_a_stranger_is_sent_to_the_sign_in_and_back(client, town, notes):
    answer = client.get("/test/form?a=1&b=2")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/sign-in?next=%2Ftest%2Fform%3Fa%3D1%26b%3D2"
    answer = town.post(client, "/test/notes", text="x", key="12345678")
    assert answer.status_code == 401
    assert "text/html" in answer.headers["content-type"]


def test_htmx_is_sent_to_the_sign_in_as_a_whole(client, notes):
    headers = {"hx-request": "true", "hx-current-url": "http://testserver/tasks/1?x=2"}
    answer = client.get("/test/form", headers=headers)
    assert answer.headers["hx-redirect"] == "/sign-in?next=%2Ftasks%2F1%3Fx%3D2"


@pytest.mark.parametrize("address", ["http://[", "http://[::1", "//", "\\", "javascript:alert(1)"])
def test_htmx_on_a_page_that_is_none_is_sent_to_the_sign_in_all_the_same(client, notes, address):
    answer = client.get("/test/form", headers={"hx-request": "true", "hx-current-url": address})
    assert answer.status_code == 401
    assert answer.headers["hx-redirect"] == "/sign-in?next=%2F"
    assert answer.headers["content-security-policy"] == POLICY


def test_a_fault_of_the_pages_of_problems_is_a_problem_with_headers(client, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(problem_pages, "_problem_page", broken)
    answer = client.get("/nowhere")
    assert (answer.status_code, answer.json()["code"]) == (500, "FedbourseError")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "secret of the inside" not in answer.text
    assert "secret of the inside" in caplog.text


def test_an_error_inside_says_nothing_of_it(client, town, notes):
    town.sign_in(client, town.buyer)
    answer = client.get("/test/broken")
    assert answer.status_code == 500
    assert "Something went wrong inside the market." in answer.text
    assert "secret of the inside" not in answer.text
    assert answer.headers["content-security-policy"] == POLICY


def test_errors_are_pages_and_the_apis_are_problems(client):
    page = client.get("/nowhere")
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "There is nothing at this address." in page.text
    for name, value in HEADERS.items():
        assert page.headers.get_list(name) == [value]
    problem = client.get("/v1/nowhere")
    assert problem.headers["content-type"] == "application/problem+json"
    assert (
        problem.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    )
    script = client.get("/nowhere", headers={"accept": "application/json"})
    assert script.json()["code"] == "NotFound"


@pytest.mark.parametrize("path", ["/tasks/abc", "/v1/tasks/abc", "/tasks/abc/report"])
def test_an_id_that_is_none_is_said_in_words(client, path):
    answer = client.get(path)
    assert answer.status_code == 422
    said = html.unescape(answer.text).lower()
    assert "a task's id has 24 hexadecimal digits" in said
    assert "found 'abc'" in said
    assert "[0-9a-f]" not in said


def test_a_body_too_large_is_a_page(client):
    headers = {"origin": SPARE, "content-type": "application/x-www-form-urlencoded"}
    answer = client.post("/sign-in", content=b"a" * (2**20 + 1), headers=headers)
    assert answer.status_code == 413
    assert "Too much at once" in answer.text
