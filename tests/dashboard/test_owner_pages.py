"""The owner's own pages: what they show, to whom, and nothing of anybody else."""

from __future__ import annotations

import json
import re

import pytest

from epsilon_units import check_epsilon_units
from fedbourse.dashboard.formatting import credits, figure, losses
from fedbourse.errors import LeftTask
from fedbourse.market.commands import owner as owner_commands
from web.fixtures import STATES, Person


@pytest.fixture
def owners(town, whole):
    """All owners of the town, each with a token."""
    return [town.holder(each.name, "owner") for each in town.owners]


def allocation_of(town, task, owner):
    with town.store.read() as tx:
        return tx.allocation(task.id, owner.party)


def csrf(client):
    return client.get("/").text.partition('name="csrf" value="')[2].partition('"')[0]


def test_own_tasks_show_pay_and_spend(client, town, whole):
    town.sign_in(client, town.owner)
    text = client.get("/own").text
    line = allocation_of(town, town.completed, town.owner)
    assert line.delivered == 2
    assert credits(line.payment) in text
    assert "2 of 2" in text
    words = losses(line.budget, town.completed.card.samples)
    assert f"{figure(line.budget)} rho<small>{words}</small>" in text
    check_epsilon_units(text)
    check_epsilon_units(client.get(f"/tasks/{town.completed.id}").text)
    assert f"<b>{credits(town.trading.balance(town.owner.party))}</b>" in text
    half = allocation_of(town, town.training, town.owner)
    assert figure(half.budget) in text
    for state in ("completed", "training", "settled", "announced"):
        assert f'href="/tasks/{getattr(town, state).id}"' in text
    assert f'href="/tasks/{town.open.id}"' not in text  # it is not interested in this one


def test_an_owner_without_tasks_is_told_where_to_look(client, town):
    town.sign_in(client, town.people["another owner's token"])
    assert "has not joined a task in this market yet" in client.get("/own").text


def test_own_tasks_are_for_owners(client, town):
    assert client.get("/own").headers["location"] == "/sign-in?next=%2Fown"
    town.sign_in(client, town.buyer)
    assert client.get("/own").status_code == 403


def test_old_tasks_are_found_further_back(client, town, monkeypatch):
    from fedbourse.dashboard import owner_pages

    joined = {town.completed.id, town.training.id, town.announced.id}
    monkeypatch.setattr(owner_pages, "ROWS", 2)
    town.sign_in(client, town.owner)
    seen, address = [], "/own"
    while address:
        text = client.get(address).text
        shown = re.findall(r'<th scope="row"><a href="/tasks/([0-9a-f]{24})"', text)
        assert 1 <= len(shown) <= 2
        seen += shown
        older = re.search(r'href="(/own\?before=[0-9a-f]{24})"', text)
        address = older and older[1]
    assert seen == sorted(set(seen), reverse=True)
    assert joined <= set(seen)
    assert town.open.id not in seen


def test_what_was_put_in_was_not_earned(client, town):
    earned = allocation_of(town, town.completed, town.owner)
    town.trading.fund(77_000_000, party=town.owner.party, reference="of my own")
    town.sign_in(client, town.owner)
    text = client.get("/own").text
    balance = town.trading.balance(town.owner.party)
    assert balance >= 77_000_000 + earned.payment
    assert f"<b>{credits(balance - 77_000_000)}</b>" in text
    assert f"<b>{credits(balance)}</b>" in text


def test_what_was_erased_is_not_shown(client, town):
    town.trading.do(owner_commands.erase, town.ann.caller, town.completed.id)
    town.sign_in(client, town.owner)
    text = client.get("/own").text
    assert "erased" in text
    assert client.get(f"/tasks/{town.completed.id}").status_code == 200
    assert client.get(f"/tasks/{town.completed.id}/report").status_code == 200


@pytest.mark.parametrize("state", [name for name in STATES if name not in ("draft", "open")])
def test_the_page_of_a_task_shows_the_own_part(client, town, state):
    task = getattr(town, state)
    assert "Your part" not in client.get(f"/tasks/{task.id}").text
    town.sign_in(client, town.owner)
    text = client.get(f"/tasks/{task.id}").text
    assert "Your part" in text
    assert ("To leave" in text) == (state in ("announced", "settled"))
    assert (f'href="/tasks/{task.id}/leave"' in text) == (state == "announced")
    assert f"a value of {figure(town.ann.value)} credits per rho" in text


def left(town, task, party):
    with town.store.read() as tx:
        return tx.exit(task.id, party)


def test_an_owner_leaves_once_however_often_it_clicks(client, town):
    town.sign_in(client, town.owner)
    path = f"/tasks/{town.announced.id}/leave"
    text = client.get(path).text
    for said in ("What is sold", "What is owed", "It cannot be taken back."):
        assert said in text
    assert left(town, town.announced, town.owner.party) is None  # nothing was confirmed
    fields = {"csrf": csrf(client), "key": "step-back-1"}
    for key in ("step-back-1", "step-back-1", "step-back-2"):
        answer = town.post(client, path, **(fields | {"key": key}))
        assert (answer.status_code, answer.headers["location"]) == (303, path[: -len("/leave")])
    assert left(town, town.announced, town.owner.party) is not None
    text = client.get(f"/tasks/{town.announced.id}").text
    assert "Your part: you left the task" in text
    assert f'href="{path}"' not in text
    assert "You are out of this task: you left the task." in client.get(path).text


def test_leaving_an_open_task_leaves_an_event_in_the_history(client, town):
    owner = town.owners[1]
    town.trading.do(owner_commands.leave_task, owner.caller, town.open.id)
    person = town.holder(owner.name, "owner")
    town.sign_in(client, person)
    assert "you left the task" in client.get("/own").text
    text = client.get(f"/tasks/{town.open.id}").text
    assert "what you reported was deleted" in text
    assert "credits per rho" not in text.partition("Your part")[2].partition("</section>")[0]


@pytest.mark.parametrize("state", ["settled", "training", "completed"])
def test_it_is_too_late_to_leave_what_is_settled(client, town, state):
    task = getattr(town, state)
    town.sign_in(client, town.owner)
    path = f"/tasks/{task.id}/leave"
    assert "A task can be left while it is open or announced" in client.get(path).text
    answer = town.post(client, path, csrf=csrf(client), key="too-late-1")
    assert answer.status_code == 409
    assert "needs a task that is open or announced" in answer.text
    assert left(town, task, town.owner.party) is None


def test_an_owner_whose_device_missed_a_tick_is_told_so(client, town):
    town.trading.wait(town.announced.card.deadlines.tick_s)  # the others have replied
    town.sign_in(client, town.owner)
    text = client.get(f"/tasks/{town.announced.id}").text
    assert "Your part: your device missed a tick" in text
    assert "Your device did not reply to tick 0" in text
    assert "Nothing of yours is sold here, and nothing is owed." in text
    assert "your device missed a tick" in client.get("/own").text
    assert "1 out: 1 missed a tick" in text


def test_nobody_leaves_for_another(client, town):
    path = f"/tasks/{town.announced.id}/leave"
    before = client.get(path)
    assert before.headers["location"].startswith("/sign-in")
    town.sign_in(client, town.people["another owner's token"])
    assert client.get(path).status_code == 404
    fields = {"csrf": csrf(client), "key": "other-owner"}
    assert town.post(client, path, **fields).status_code == 404
    assert town.post(client, path, key="no-token-1").status_code == 403
    assert town.post(client, path, origin="http://evil.example", **fields).status_code == 403
    town.sign_in(client, town.buyer, csrf=fields["csrf"])
    assert client.get(path).status_code == 403
    for owner in town.owners:
        assert left(town, town.announced, owner.name) is None


def pages_of(town):
    """Return every page that an owner can reach."""
    tasks = [getattr(town, name).id for name in STATES if name != "draft"]
    parts = ("", "/earn", "/verify", "/report", "/leave")
    return [
        "/",
        "/own",
        "/ledger",
        *(f"/tasks/{task}{part}" for task in tasks for part in parts),
        *(f"/ledger/escrow:{task}" for task in tasks),
        *(f"/ledger/{each.name}" for each in town.owners),
        "/ledger/buyer:acme",
        "/ledger/outside",
        "/ledger/verify",
    ]


def shown_of(town, name):
    """Return what may betray an owner: its name, its value, its budgets and pay, as pages write."""
    found = {name}
    with town.store.read() as tx:
        for task in tx.tasks(limit=100):
            said = (
                tx.interest(task.id, name),
                *tx.replies_of(task.id, name),
                tx.allocation(task.id, name),
            )
            for each in filter(None, said):
                found.add(each.salt)
                for number in (getattr(each, "value", None), getattr(each, "budget", None)):
                    if number:
                        found |= {json.dumps(number), figure(number, 6), f"{number:.5f}"}
                        found |= {figure(number)} if figure(number) != "1" else set()
                if hasattr(each, "payment"):
                    found |= {credits(each.payment), f"{each.payment / 1e6:.6f}"}
    return found


def test_no_page_of_an_owner_shows_anything_of_another(client, town, owners):
    pages = {}
    for owner, person in enumerate(owners):
        token = csrf(client)
        town.sign_in(client, person, **({"csrf": token} if token else {}))
        for path in pages_of(town):
            pages[owner, path] = client.get(path).text
        fields = {"csrf": csrf(client), "key": f"verify-{owner}"}
        for task in (town.completed, town.training, town.announced):
            path = f"/tasks/{task.id}/verify"
            pages[owner, f"{path} "] = town.post(client, path, **fields).text
    whose = {owner.name: shown_of(town, owner.name) for owner in town.owners}
    for (owner, path), text in pages.items():
        # Somebody who asks for another's statement is told whose it is not.
        asked = path.removeprefix("/ledger/")
        own = whose[town.owners[owner].name]
        for name, secrets in whose.items():
            if name != town.owners[owner].name:
                found = [s for s in secrets - own if re.search(rf"(?<![\d.]){re.escape(s)}", text)]
                assert found in ([], [asked]), (path, found)
    own_tasks = whose[town.owners[0].name]
    assert [s for s in own_tasks if s in pages[0, "/own"]], "the test looks for the wrong strings"


def test_a_stranger_sees_no_owner(client, town, whole):
    whose = set().union(*(shown_of(town, owner.name) for owner in town.owners))
    for path in pages_of(town):
        text = client.get(path).text
        found = [s for s in whose if re.search(rf"(?<![\d.]){re.escape(s)}", text)]
        assert not found, (path, found)


def test_a_person_who_is_both_sees_its_own_part_only(client, town):
    town.sign_in(client, Person("buyer:acme", town.buyer.token))
    assert "Your part" not in client.get(f"/tasks/{town.completed.id}").text


def test_own_tasks_are_readable_by_everybody(looked_at, town, whole):
    looked_at("/own", "own", who=town.owner)


@pytest.mark.parametrize("state", ["announced", "completed"])
def test_the_own_part_is_readable_by_everybody(looked_at, town, state):
    looked_at(f"/tasks/{getattr(town, state).id}", f"task-{state}-owner", who=town.owner)


def test_the_question_whether_to_leave_is_readable_by_everybody(looked_at, town):
    looked_at(f"/tasks/{town.announced.id}/leave", "leave-task", who=town.owner)


def test_a_task_that_was_left_is_readable_by_everybody(looked_at, town):
    town.trading.do(owner_commands.leave_task, town.ann.caller, town.announced.id)
    looked_at(f"/tasks/{town.announced.id}", "task-left-owner", who=town.owner)


def test_an_owner_leaves_in_the_browser(visitor, town, whole):
    others = [town.owners[1], town.owners[2]]
    page = visitor(who=town.owner)
    page.goto("/own")
    row = page.get_by_role("row").filter(has_text="announced")
    row.get_by_role("link", name="Leave is it late?").click()
    page.get_by_role("heading", name="Leave this task?").wait_for()
    page.get_by_role("link", name="Stay in").click()
    page.get_by_role("heading", name="Your part: no plan yet").wait_for()
    assert left(town, town.announced, town.owner.party) is None
    page.get_by_role("link", name="Leave", exact=True).click()
    page.get_by_role("button", name="Leave for good").click()
    page.get_by_role("heading", name="Your part: you left the task").wait_for()
    page.get_by_text("Nothing of yours is sold here").wait_for()
    assert page.get_by_role("link", name="Leave", exact=True).count() == 0
    with pytest.raises(LeftTask):
        town.trading.plan(town.ann, town.trading.task(town.announced.id), 0.5)
    assert town.trading.advance()  # nobody waits for it
    assert {owner.name for owner in others} == {
        owner.name
        for owner in others
        if town.trading.participation(owner, town.announced.id)["plan"]
    }
    page.get_by_role("link", name="Own").click()
    row = page.get_by_role("row").filter(has_text="announced")
    row.get_by_text("you left the task").wait_for()


def test_the_whole_path_of_an_owner(visitor, town, whole):
    """From an open task to money outside, in one browser."""
    page = visitor()
    page.goto("/?state=announced")
    page.get_by_role("link", name="is it late?").click()
    page.get_by_role("link", name="What would I earn?").click()
    page.get_by_label("What privacy is worth to you", exact=True).fill("1.5")
    page.get_by_text("This is your best reply.").wait_for()
    page.get_by_role("link", name="Sign in").click()
    page.get_by_label("Token").fill(town.owner.token)
    page.get_by_role("main").get_by_role("button", name="Sign in").click()
    page.get_by_text("What you type stays in this browser.").wait_for()
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Own").click()
    row = page.get_by_role("row").filter(has_text="announced")
    row.get_by_text("no plan yet").wait_for()
    row.get_by_role("link", name="is it late?", exact=True).click()
    page.get_by_text("To leave").wait_for()
    page.get_by_role("link", name="Own").click()
    done = page.get_by_role("row").filter(has_text="completed").last  # the first to complete
    done.get_by_text("2 of 2").wait_for()
    done.get_by_role("link").click()
    page.get_by_role("link", name="Report of the trade").click()
    page.get_by_role("cell", name=town.owner.party).wait_for()
    page.get_by_role("link", name="Own").click()
    page.get_by_role("link", name="Statement and withdrawal").click()
    held = town.trading.balance(town.owner.party)
    page.get_by_text("Take money out").click()
    page.get_by_label("Amount").fill("1.25")
    page.get_by_label("Where it goes").fill("IBAN DE02 1203 0000 0000 2020 51")
    page.get_by_role("button", name="Go on").click()
    page.get_by_role("heading", name="Take out 1.25 credits?").wait_for()
    assert town.trading.balance(town.owner.party) == held
    page.get_by_role("button", name="Take it out").click()
    page.get_by_text("The withdrawal has left your account.").wait_for()
    assert town.trading.balance(town.owner.party) == held - 1_250_000
    page.get_by_role("row").filter(has_text="withdrawal").get_by_text("-1.25").wait_for()
