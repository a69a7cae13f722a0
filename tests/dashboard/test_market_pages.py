"""The market's page and the page of a task: what is on them, for whom, and how it looks."""

from __future__ import annotations

import gzip
import re

import pytest

from dashboard.conftest import ROOT
from fedbourse.dashboard import pages, static_files
from fedbourse.dashboard.market_pages import ROWS
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.records import State
from fedbourse.testing.trading import BUYER
from web.fixtures import STATES, replied

GOAL = re.compile(r'<a href="/tasks/([0-9a-f]{24})">([^<]*)</a>')


def goals(answer):
    assert answer.status_code == 200
    return [goal for _, goal in GOAL.findall(answer.text)]


def ids(answer):
    return [task for task, _ in GOAL.findall(answer.text)]


def test_everybody_sees_what_is_published_and_no_draft(client, town, whole):
    found = ids(client.get("/"))
    names = (*STATES, "judged", "waiting")
    assert set(found) == {getattr(town, name).id for name in names if name != "draft"}
    assert ids(client.get("/?state=draft")) == []
    town.sign_in(client, town.buyer)
    drafts = (town.draft, town.second_draft, town.unjudged, town.expected)
    assert set(ids(client.get("/?state=draft"))) == {draft.id for draft in drafts}


@pytest.mark.parametrize("state", [name for name in STATES if name != "draft"])
def test_tasks_are_found_by_state(client, town, whole, state):
    tasks = [getattr(town, name) for name in (*STATES, "judged", "waiting")]
    expected = {task.id for task in tasks if task.state.value == state}
    assert getattr(town, state).id in expected
    assert set(ids(client.get(f"/?state={state}"))) == expected


def test_tasks_are_found_by_words(client, town):
    town.publish("Tell cats from dogs", data="photographs")
    town.publish("Will it rain?", data="weather of a garden")
    assert goals(client.get("/?text=DOGS+cats")) == ["Tell cats from dogs"]
    assert goals(client.get("/?text=garden")) == ["Will it rain?"]
    assert goals(client.get("/?text=acme+rain")) == ["Will it rain?"]
    assert "No task fits." in client.get("/?text=unheard-of").text


def test_tasks_are_sorted(client, town):
    town.publish("small", reward=1.0)
    town.publish("best", reward="best", max_reward=50.0)
    town.publish("large", reward=9.5)
    town.publish("middle", reward=2.5)
    assert goals(client.get("/")) == ["middle", "large", "best", "small"]
    assert goals(client.get("/?sort=reward")) == ["large", "middle", "small", "best"]
    assert goals(client.get("/?sort=deadline")) == ["small", "best", "large", "middle"]


def test_tasks_come_in_pages(client, town):
    for number in range(ROWS + 3):
        town.publish(f"task {number:02d}")
    first, second = client.get("/?text=task"), client.get("/?text=task&page=2")
    assert goals(first) + goals(second) == [f"task {n:02d}" for n in reversed(range(ROWS + 3))]
    assert 'rel="next" href="/?text=task&amp;page=2"' in first.text
    assert 'rel="prev" href="/?text=task&amp;page=1"' in second.text
    assert "There is no page 9" in client.get("/?page=9").text


def test_nonsense_in_the_address_gets_a_sentence(client):
    for query in ("state=asleep", "sort=smell", "page=0", "page=x", "text=" + "a" * 201):
        answer = client.get(f"/?{query}")
        assert answer.status_code == 422
        assert "text/html" in answer.headers["content-type"]
    assert client.get("/tasks/none").status_code == 422
    assert client.get("/tasks/" + "0" * 24).status_code == 404


def test_how_many_owners_like_an_open_task_is_shown(client, town):
    assert town.open.interested == 0
    row = client.get("/?state=open").text.partition("<tbody>")[2]
    assert '<td class="num" data-label="Owners">2</td>' in row


def test_a_part_is_enough_for_htmx(client, town):
    town.publish("a task")
    part = client.get("/", headers={"hx-request": "true"})
    assert goals(part) == ["a task"]
    assert "<html" not in part.text


def test_what_a_buyer_wrote_is_never_markup(client, town):
    evil = "<script>alert(1)</script>\"'<img src=x>"
    task = town.publish(evil, data=evil, scaling=evil, validation=evil)
    for answer in (client.get("/"), client.get(f"/tasks/{task.id}"), client.get(f"/?text={evil}")):
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
        assert "<img src=x" not in answer.text


@pytest.mark.parametrize("state", STATES)
def test_the_page_of_a_task_has_the_papers_six_items(client, town, state):
    town.sign_in(client, town.buyer)
    answer = client.get(f"/tasks/{getattr(town, state).id}")
    assert answer.status_code == 200
    for item in (
        "Goal",
        "Category of data",
        "Loss function",
        "Query",
        "Compensation",
        "Total reward",
    ):
        assert f"<dt>{item}</dt>" in answer.text
    assert f'<span class="badge {state}">{state}</span>' in answer.text


def test_a_cancelled_task_says_why(client, town):
    task = town.publish("short")
    town.trading.do(buyer_commands.cancel, BUYER, task.id, reason="the money is gone")
    assert "the money is gone" in client.get(f"/tasks/{task.id}").text


def test_two_owners_are_warned_whenever_there_are_but_two(client, town):
    words = "the announced total tells each of them what the other planned"
    trading, owners = town.trading, town.owners

    def warned(task):
        return words in client.get(f"/tasks/{task.id}").text

    assert not warned(trading.announced(owners))
    task = trading.settled(owners)
    assert not warned(task)
    for owner in owners:
        trading.decide(owner, task.id, accept=owner is not owners[2])
    trading.advance()
    task = replied(trading, owners[:2], task.id)
    assert task.state is State.SETTLED
    assert warned(task)  # two have terms
    for owner in owners[:2]:
        trading.decide(owner, task.id)
    trading.advance()
    assert trading.task(task.id).state is State.TRAINING
    assert warned(task)  # two have signed
    assert warned(trading.announced(owners[:2]))


@pytest.mark.parametrize(
    "path", ["/", "/sign-in", "/tasks/{}", "/tasks/{}/earn", "/buy", "/static/app.js"]
)
def test_head_is_answered_as_get_is(client, town, path):
    town.sign_in(client, town.buyer)
    asked = path.format(town.open.id)
    head, got = client.head(asked), client.get(asked)
    assert head.status_code == got.status_code == 200
    assert head.headers["content-type"] == got.headers["content-type"]
    assert client.head("/nowhere").status_code == 404


def test_a_draft_is_shown_to_its_buyer_only(client, town):
    path = f"/tasks/{town.draft.id}"
    assert client.get(path).status_code == 404
    town.sign_in(client, town.owner)
    assert client.get(path).status_code == 404
    town.sign_in(client, town.buyer, csrf=csrf(client))
    assert client.get(path).status_code == 200


def csrf(client):
    return client.get("/").text.partition('name="csrf" value="')[2].partition('"')[0]


def test_nobody_sees_what_an_owner_said(client, town, whole):
    secrets = town.secrets_of("nobody")
    for path in ["/", *(f"/tasks/{getattr(town, name).id}" for name in STATES if name != "draft")]:
        text = client.get(path).text
        assert not [secret for secret in secrets if secret in text]


def test_files_are_kept_by_their_hash(client):
    for name, kind in (
        ("app.js", "text/javascript"),
        ("style.css", "text/css"),
        ("icon.svg", "image/svg+xml"),
        ("vendor/htmx.min.js", "text/javascript"),
    ):
        kept = client.get(pages.LOOK.files.url(name))
        assert kept.headers["content-type"].startswith(kind)
        assert "immutable" in kept.headers["cache-control"]
        asked = client.get(f"/static/{name}?v=old")
        assert asked.headers["cache-control"] == "no-cache"
        again = client.get(f"/static/{name}", headers={"if-none-match": kept.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        plain = client.get(f"/static/{name}", headers={"accept-encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.content == kept.content
    assert gzip.decompress(pages.LOOK.files._files["app.js"].packed)


@pytest.mark.parametrize(
    "path", ["../pages.py", "..%2fpages.py", "%2e%2e/%2e%2e/errors.py", "/etc/passwd", "", "vendor"]
)
def test_files_are_those_that_are_there(client, path):
    assert client.get(f"/static/{path}").status_code == 404


def test_a_market_without_the_fetched_scripts_says_so(client, monkeypatch):
    assert not pages.LOOK.files.missing
    monkeypatch.setattr(static_files, "VENDOR", ("vendor/gone.js",))
    monkeypatch.setattr(pages, "LOOK", pages.Look())
    assert "Charts and live updates are off" in client.get("/").text


def test_no_address_is_in_the_lock():
    assert "://" not in (ROOT / "package-lock.json").read_text()
    assert "://" not in (ROOT / ".npmrc").read_text()


def test_the_market_is_readable_by_everybody(looked_at, town, whole):
    town.publish("Tell from the sound of a machine whether it will fail within the next two weeks")
    looked_at("/", "market", who=town.buyer)


@pytest.mark.parametrize("state", ["open", "training", "completed"])
def test_a_task_is_readable_by_everybody(looked_at, town, state):
    looked_at(f"/tasks/{getattr(town, state).id}", f"task-{state}")


def test_the_list_follows_what_is_typed(visitor, town):
    town.publish("Tell cats from dogs")
    town.publish("Will it rain?")
    page = visitor()
    page.goto("/")
    page.get_by_label("Search").fill("rain")
    page.get_by_text("1 task", exact=True).wait_for()
    assert "text=rain" in page.url
    page.get_by_label("Search").fill("")
    page.get_by_text("2 tasks", exact=True).wait_for()
    page.get_by_label("State").select_option("completed")
    page.get_by_text("No task fits.").wait_for()
    page.go_back()
    page.get_by_text("2 tasks", exact=True).wait_for()
    page.get_by_role("heading", name="Market").wait_for()


def test_the_list_works_without_scripts(visitor, town):
    town.publish("Tell cats from dogs")
    town.publish("Will it rain?")
    page = visitor("phone", java_script_enabled=False)
    page.goto("/")
    page.get_by_label("Search").fill("rain")
    page.get_by_role("button", name="Show").click()
    page.get_by_text("1 task", exact=True).wait_for()


def test_a_chart_breaks_no_rule_of_the_page(visitor):
    """The policy forbids styles in markup; those that uPlot sets from its script pass."""
    page = visitor()
    page.goto("/")
    page.evaluate(
        """async (source) => {
          await new Promise((done) => {
            const script = document.createElement("script");
            script.src = source; script.onload = done; document.head.append(script);
          });
          new uPlot({width: 400, height: 200, series: [{}, {stroke: colour("--series-1")}]},
                    [[1, 2, 3], [4, 5, 6]], document.querySelector("main"));
        }""",
        pages.LOOK.files.url("vendor/uPlot.iife.min.js"),
    )
    assert page.locator(".u-over").bounding_box()["width"] > 100


def test_the_watch_sees_what_it_is_for(visitor):
    from playwright.sync_api import Error

    page = visitor()
    page.goto("/")
    page.evaluate("fetch('http://127.0.0.1:9/x').catch(() => null)")
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\">x</p>')")
    page.evaluate("setTimeout(() => { throw new Error('planted') })")
    with pytest.raises(Error, match="ERR_"):
        page.goto("http://127.0.0.1:9/y")
    wrong = "\n".join(page.watch.wrong)
    for sign in (
        "Connecting to 'http://127.0.0.1:9/x' violates",
        "inline style violates",
        "script: planted",
        "outside: http://127.0.0.1:9/y",
    ):
        assert sign in wrong
    page.watch.expect(".")
