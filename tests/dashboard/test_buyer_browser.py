"""A buyer's pages in a real browser: how they look, and the what-if that follows what is typed."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.records import State
from fedbourse.testing.trading import BUYER


def delivered(page):
    """Wait until the what-if has answered what is typed now."""
    page.locator("#what-if-result:not(.old) .took").wait_for()


def takers(page):
    return page.locator("#what-if-result .facts b").first.inner_text()


def said(page):
    """Return the answer, but how long it took."""
    return page.locator("#what-if-result").inner_text().partition("Computed")[0]


def moved(page, before):
    """Wait until the answer is another one."""
    shown = "document.querySelector('#what-if-result').innerText.split('Computed')[0]"
    page.wait_for_function(f"(before) => {shown} !== before", arg=before)


def fill(page, label, text):
    """Type into a field and wait for the answer to it."""
    with page.expect_response("**/buy/what-if"):
        page.get_by_label(label, exact=True).fill(text)


@pytest.fixture
def new_task(visitor, town):
    page = visitor(who=town.buyer)
    page.goto("/buy/new")
    delivered(page)
    return page


def test_a_what_if_that_came_too_fast_is_asked_again(new_task):
    page, refused = new_task, []
    page.watch.expect("429|what-if: None")  # this answer is not of the market

    def once(route):
        if refused:
            route.continue_()
        else:
            refused.append(route.request.post_data)
            route.fulfill(status=429, content_type="application/problem+json", body="{}")

    page.route("**/buy/what-if", once)
    before = said(page)
    fill(page, "Total reward (R)", "20")
    assert "reward=20" in refused[0]
    moved(page, before)
    delivered(page)
    assert page.locator("#what-if-error").is_hidden()


def test_a_buyers_page_is_readable_by_everybody(looked_at, town, whole):
    looked_at("/buy", "buy", who=town.buyer)


def test_a_buyer_without_tasks_is_shown_the_way(looked_at, town):
    looked_at("/buy", "buy-empty", who=town.people["another buyer"])


def test_a_new_task_is_readable_by_everybody(looked_at, town):
    looked_at("/buy/new", "buy-new", who=town.buyer, ready=delivered)


def test_what_is_wrong_with_a_new_task_is_readable_by_everybody(looked_at, town):
    def ready(page):
        page.get_by_label("Goal").fill("")
        page.get_by_label("Clip (L)").fill("-1")
        page.get_by_label("Interest").fill("soon")
        page.get_by_role("button", name="Create the draft").click()
        page.get_by_text("things are not right yet").wait_for()

    looked_at("/buy/new", "buy-new-wrong", who=town.buyer, ready=ready, expect=["422"])


@pytest.mark.parametrize(
    ("state", "step"),
    [
        ("draft", "open"),
        ("open", "announce"),
        ("settled", "train"),
        ("reviewed", "train"),
        ("training", "cancel"),
    ],
)
def test_a_step_is_readable_by_everybody(looked_at, town, state, step):
    task = getattr(town, state).id
    looked_at(f"/tasks/{task}/steps/{step}", f"step-{step}-{state}", who=town.buyer)


def test_the_risk_of_upfront_pay_is_readable_by_everybody(looked_at, town):
    card = replace(town.draft.card, vesting="upfront")
    task = town.trading.do(buyer_commands.create, BUYER, card).id
    looked_at(f"/tasks/{task}/steps/open", "step-open-upfront", who=town.buyer)


def test_training_is_started_when_everybody_has_signed(visitor, town):
    """The buyer need not wait until the time for review is over."""
    page = visitor(who=town.buyer)
    page.goto(f"/tasks/{town.settled.id}/steps/train")
    page.get_by_text("have neither signed nor declined").wait_for()
    task = town.reviewed
    before = town.trading.balance(BUYER.party)
    page.goto(f"/tasks/{task.id}")
    page.get_by_text("you may still cancel").first.wait_for()
    page.get_by_role("link", name="Start training").click()
    page.get_by_text("This ends the time for review").wait_for()
    page.get_by_text("No money moves").wait_for()
    page.get_by_role("button", name="Start training").click()
    page.get_by_text("devices send updates round by round").first.wait_for()
    assert town.trading.task(task.id).state is State.TRAINING
    assert town.trading.balance(BUYER.party) == before
    page.goto("/buy")
    row = page.locator("tr", has=page.locator(f'a[href="/tasks/{task.id}"]'))
    assert row.locator('td[data-label="In escrow"]').inner_text().strip() == "10"
    assert row.locator('td[data-label="Paid"]').inner_text().strip() == "0"


@pytest.mark.parametrize("state", ["draft", "announced", "reviewed", "training", "completed"])
def test_a_buyers_own_task_is_readable_by_everybody(looked_at, town, state):
    looked_at(f"/tasks/{getattr(town, state).id}", f"own-{state}", who=town.buyer)


def test_numbers_move_with_the_reward(new_task):
    page = new_task
    row = page.locator("#what-if-result tbody tr.chosen td")
    accuracy, before = row.first.inner_text(), said(page)
    pay = page.locator("#what-if-result table").nth(1).locator("td").nth(1)
    earned = float(pay.inner_text())
    fill(page, "Total reward (R)", "20")
    moved(page, before)
    assert float(row.first.inner_text().split()[0]) > float(accuracy.split()[0])
    assert float(pay.inner_text()) == pytest.approx(10 * earned, rel=0.01)
    assert page.locator("#utility canvas").bounding_box()["width"] > 200


def test_the_slider_and_the_number_follow_each_other(new_task):
    page = new_task
    slider = page.locator("#reward-slider")
    with page.expect_response("**/buy/what-if"):
        slider.focus()
        page.keyboard.press("End")
    assert page.get_by_label("Total reward (R)", exact=True).input_value() == "20"
    fill(page, "Total reward (R)", "0.2")
    assert slider.input_value() == "500"


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("Rounds (T)", "5000"),
        ("Clip (L)", "20"),
        ("Accuracy of guessing", "0.1"),
        ("Accuracy value", "300"),
        ("Highest value", "1.01"),
        ("Or paste a sample of values", "1 1 1 2 2 9"),
    ],
)
def test_every_assumption_moves_the_answer(new_task, label, text):
    page = new_task
    before = said(page)
    fill(page, label, text)
    moved(page, before)
    assert page.locator("#what-if-error").is_hidden()


def test_a_wrong_value_is_said_at_its_field_and_forgotten_when_it_is_mended(new_task):
    page = new_task
    fill(page, "Clip (L)", "0")
    error = page.locator("#f-clip-live")
    error.wait_for()
    assert "greater than" in error.inner_text()
    assert page.get_by_label("Clip (L)").get_attribute("aria-invalid") == "true"
    assert "Clip" in page.locator("#what-if-error").inner_text()
    fill(page, "Clip (L)", "1")
    error.wait_for(state="detached")
    assert page.locator("#what-if-error").is_hidden()
    assert page.get_by_label("Clip (L)").get_attribute("aria-invalid") is None


def test_a_hundred_thousand_owners(new_task):
    page = new_task
    fill(page, "Owners", "100000")
    page.get_by_text(re.compile(r"Computed in \d+ ms for 100,000 owners")).wait_for()
    assert int(takers(page).replace(",", "")) > 100


def test_an_answer_that_was_overtaken_is_dropped(new_task):
    """The first question is held back until the second was answered."""
    page = new_task
    held = []

    def hold(route):
        if "owners=77&" in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    page.route("**/buy/what-if", hold)
    page.get_by_label("Owners", exact=True).fill("77")
    page.wait_for_timeout(400)
    assert held
    fill(page, "Owners", "88")
    page.get_by_text("for 88 owners").wait_for()
    held[0].fulfill(json={"html": "<p class=took>for 77 owners</p>", "errors": {}})
    page.wait_for_timeout(200)
    assert page.get_by_text("for 77 owners").count() == 0


def test_the_best_reward_is_taken_over(new_task):
    page = new_task
    with page.expect_response("**/buy/what-if"):
        page.get_by_role("button", name="Use R*").click()
    best = page.locator("#what-if-result tr.chosen td").last.inner_text()
    reward = page.get_by_label("Total reward (R)", exact=True).input_value()
    assert float(reward) == pytest.approx(float(best), rel=0.01)


def test_a_market_that_is_away_is_said(new_task):
    page = new_task
    page.watch.expect("ERR_FAILED")
    page.route("**/buy/what-if", lambda route: route.abort())
    page.get_by_label("Owners", exact=True).fill("50")
    page.get_by_text("does not respond right now").wait_for()
    page.unroute("**/buy/what-if")
    fill(page, "Owners", "51")
    page.get_by_text("for 51 owners").wait_for()
    assert page.locator("#what-if-error").is_hidden()


def test_a_task_is_written_without_scripts(visitor, town):
    page = visitor("phone", who=town.buyer, java_script_enabled=False)
    page.goto("/buy/new")
    page.get_by_label("Owners", exact=True).fill("123")
    page.get_by_role("button", name="Show what this would buy").click()
    page.get_by_text("for 123 owners").wait_for()
    page.get_by_label("Goal").fill("Tell cats from dogs")
    page.get_by_label("Category of data").fill("A photograph")
    page.get_by_role("button", name="Create the draft").click()
    page.get_by_role("heading", name="Tell cats from dogs").wait_for()


def test_a_task_is_cancelled_by_keyboard_alone(visitor, town):
    task = town.trading.do(buyer_commands.create, BUYER, town.draft.card)
    page = visitor(who=town.buyer)
    page.goto(f"/tasks/{task.id}")
    page.get_by_role("link", name="Cancel the task").focus()
    page.keyboard.press("Enter")
    page.get_by_text("No money moves").wait_for()
    page.get_by_label("Reason").focus()
    page.keyboard.type("not yet")
    page.keyboard.press("Enter")
    page.get_by_text("not yet").wait_for()
