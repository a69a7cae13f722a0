"""Signing in and out, as a request and in a browser."""

from __future__ import annotations

import pytest

from fedbourse.dashboard.pages import HEADERS
from web.fixtures import Person
from web.servers import served


def test_a_token_opens_a_session_and_sign_out_ends_it(client, town):
    answer = town.sign_in(client, town.buyer, next="/?sort=reward")
    assert (answer.status_code, answer.headers["location"]) == (303, "/?sort=reward")
    page = client.get("/")
    assert "buyer:acme" in page.text
    csrf = page.text.partition('name="csrf" value="')[2].partition('"')[0]
    answer = town.post(client, "/sign-out", csrf=csrf)
    assert answer.headers["location"] == "/"
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert "buyer:acme" not in client.get("/").text


def test_a_copied_cookie_ends_with_the_session_that_it_was_copied_from(client, town):
    town.sign_in(client, town.buyer)
    copied = dict(client.cookies)
    page = client.get("/buy").text
    town.post(client, "/sign-out", csrf=page.partition('name="csrf" value="')[2].partition('"')[0])
    client.cookies.update(copied)
    assert client.get("/buy").headers["location"] == "/sign-in?next=%2Fbuy"
    client.cookies.clear()
    town.sign_in(client, town.buyer)  # another session of the same token
    assert client.get("/buy").status_code == 200


@pytest.mark.parametrize(
    ("who", "sentence"),
    [
        ("nobody's token", "The market does not know this token."),
        ("revoked", "This token was revoked."),
        ("expired", "This token has expired."),
    ],
)
def test_a_token_that_does_not_count_is_refused_in_words(client, town, who, sentence):
    town.trading.time_ms += 1000
    answer = town.sign_in(client, town.people[who])
    assert answer.status_code == 422
    assert sentence in answer.text
    assert "set-cookie" not in answer.headers
    assert town.people[who].token not in answer.text


@pytest.mark.parametrize("token", ["", "  ", "fbt_x", "<script>", "é" * 47, "a\r\nb"])
def test_what_is_no_token_is_refused(client, town, token):
    answer = town.sign_in(client, Person(token=token))
    assert answer.status_code == 422
    assert "<script>" not in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "next",
    [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "\\/evil.example",
        "/\t/evil.example",
        "javascript:alert(1)",
        "/%0d%0aSet-Cookie:x\r\nX: y",
        "/v1/tasks",
        "",
        "/" + "a" * 3000,
    ],
)
def test_signing_in_never_leads_elsewhere(client, town, next):
    shown = client.get("/sign-in", params={"next": next})
    assert 'name="next" value="/"' in shown.text
    answer = town.sign_in(client, town.buyer, next=next)
    assert answer.headers["location"] == "/"


def test_a_foreign_page_cannot_sign_anybody_in(client, town):
    answer = town.post(client, "/sign-in", origin="http://evil.example", token=town.buyer.token)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_every_page_has_its_headers_once(client, town):
    for path in ("/", "/sign-in", f"/tasks/{town.open.id}", "/nowhere"):
        answer = client.get(path)
        for name, value in HEADERS.items():
            assert answer.headers.get_list(name) == [value], (path, name)


def test_a_page_lets_browsers_run_nothing_else_frame_it_nowhere_and_keep_nothing(client, town):
    for path in ("/", "/sign-in", f"/tasks/{town.open.id}", "/nowhere"):
        headers = client.get(path).headers
        policy = dict(
            part.strip().partition(" ")[::2]
            for part in headers["content-security-policy"].split(";")
        )
        assert policy.pop("default-src") == "'self'"
        assert policy.pop("form-action") == "'self'"
        assert policy == dict.fromkeys(("frame-ancestors", "base-uri", "object-src"), "'none'")
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"


def test_a_script_that_got_into_a_page_does_not_run(visitor):
    page = visitor()
    page.watch.expect("Content Security Policy")
    page.goto("/")
    page.evaluate("""() => {
      const script = document.createElement("script");
      script.textContent = "window.ran = 'inline'";
      document.body.append(script);
      document.body.setAttribute("onclick", "window.ran = 'handler'");
      document.body.click();
      const outside = document.createElement("script");
      outside.src = "data:text/javascript,window.ran='elsewhere'";
      document.body.append(outside);
    }""")
    page.wait_for_timeout(300)
    assert page.evaluate("window.ran") is None


def test_a_page_of_another_site_cannot_frame_ours(visitor, address):
    async def another_site(scope, receive, send):
        body = b"<label>Token<input></label>"
        if scope["path"] == "/":
            body = f"<iframe src={address}/sign-in></iframe><iframe src=/own></iframe>".encode()
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    page = visitor()
    page.watch.expect("outside|frame")
    with served(another_site) as elsewhere:
        page.goto(elsewhere)
        ours, own = page.main_frame.child_frames
        own.get_by_label("Token").wait_for()
        page.wait_for_timeout(500)
        assert ours.get_by_label("Token").count() == 0


def test_a_person_signs_in_by_keyboard_and_out(visitor, town):
    page = visitor()
    page.goto("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.get_by_role("link", name="Sign in").focus()
    page.keyboard.press("Enter")
    page.get_by_label("Token").focus()
    page.keyboard.type(town.buyer.token)
    page.keyboard.press("Enter")
    page.get_by_text("buyer:acme").wait_for()
    assert town.buyer.token not in str(page.context.cookies())
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("link", name="Sign in").wait_for()


def test_signing_out_forgets_what_pages_kept_in_the_browser(visitor, town):
    page = visitor(who=town.buyer)
    page.evaluate("""() => {
      for (const store of [sessionStorage, localStorage]) {
        for (const key of ["fedbourse records 1", "fedbourse evaluated 1", "other"]) store[key] = 1;
      }
    }""")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("link", name="Sign in").wait_for()
    kept = page.evaluate("[Object.keys(sessionStorage), Object.keys(localStorage)]")
    assert kept == [["other"], ["other"]]


def test_the_sign_in_is_readable_by_everybody(looked_at):
    looked_at("/sign-in", "sign-in")


def test_a_wrong_token_is_said_where_it_was_typed(visitor, axe):
    page = visitor("phone")
    page.watch.expect("422")
    page.goto("/sign-in")
    page.get_by_label("Token").fill("fbt_wrong")
    page.get_by_role("main").get_by_role("button", name="Sign in").click()
    page.get_by_role("alert").get_by_text("A token is fbt_ and 43 characters").wait_for()
    axe(page)


def test_a_problem_is_readable_by_everybody(looked_at):
    looked_at("/nowhere", "problem", expect=["404"])
