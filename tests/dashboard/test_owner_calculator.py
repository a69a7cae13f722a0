"""The owner's calculator: right to the last digit that counts, and silent about its owner."""

from __future__ import annotations

import json
import math
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from epsilon_units import check_epsilon_units
from fedbourse.dashboard import epsilon_table as tables
from fedbourse.dashboard.epsilon_table import EpsilonTable, epsilon_table
from fedbourse.device.advice import advise
from fedbourse.game import best_response, equilibrium
from fedbourse.market.offers import likely_reward
from fedbourse.privacy import DELTA, epsilon
from fedbourse.testing.trading import card

CURVE = """([low, high, delta, epsilons, budgets]) => {
  const of = earnings.epsilonCurve({low, high, delta, epsilons});
  return budgets.map(of);
}"""


def curve(page, budgets, table=None):
    """Return epsilons as the page's script reads them from the table."""
    known = table or epsilon_table()
    epsilons = [float(each) for each in known.text.split(" ")]
    found = page.evaluate(CURVE, [known.low, known.high, known.delta, epsilons, budgets.tolist()])
    return np.array(found)


@pytest.fixture
def calculator(visitor, town):
    page = visitor()
    page.goto(f"/tasks/{town.open.id}/earn")
    return page


def test_the_best_reply_is_the_games(calculator):
    inputs = [
        (value, others, reward)
        for value in (1e-3, 0.7, 1.0, 3.3, 250.0)
        for others in (1e-6, 0.02, 1.0, 41.5, 1e4)
        for reward in (1e-3, 1.0, 4.0, 1234.5)
    ]
    found = calculator.evaluate("(all) => all.map((each) => earnings.reply(...each))", inputs)
    for (value, others, reward), reply in zip(inputs, found, strict=True):
        assert reply == pytest.approx(best_response(value, others, reward=reward), rel=1e-6)
        pay = calculator.evaluate("(all) => earnings.pay(...all)", [reply, others, reward])
        assert pay == pytest.approx(reward * reply / (reply + others) if reply else 0.0, rel=1e-6)


def sold_by_others(known, value, reward):
    """Return what all but the last owner sell in equilibrium."""
    rivals = known["owners"] - 1
    spread = np.full(rivals, value)
    if known["low"] is not None:
        low, high = known["low"], known["high"]
        spread = low + (high - low) * (np.arange(rivals) + 0.5) / rivals
    found = equilibrium(np.append(spread, value), reward=reward)
    own = found.budgets[-1] if found.participants[-1] == rivals else 0.0
    return found.total_budget - own


@pytest.mark.parametrize("interested", [None, 2, 3, 10, 1000])
@pytest.mark.parametrize("assumed", [True, False])
def test_before_the_announcement_it_says_what_the_device_says(calculator, interested, assumed):
    task = {"total_budget": None, "reward_micro": None, "interested": interested}
    asked = card(reward=12.5) if assumed else card(reward=12.5, assumptions=None)
    for value in (0.1, 0.999, 1.0, 1.7, 2.5, 4.99, 8.0):
        advice = advise(asked, task, value=value, lifetime_cap=3.0, left=3.0)
        known = {
            "owners": max(2, interested or 0),
            "low": asked.assumptions.values_low if assumed else None,
            "high": asked.assumptions.values_high if assumed else None,
        }
        others, best = calculator.evaluate(
            """([value, known, reward]) => {
              const others = earnings.othersAmong(value, known, reward);
              return [others, earnings.reply(value, others, reward)];
            }""",
            [value, known, 12.5],
        )
        assert others == pytest.approx(sold_by_others(known, value, 12.5), rel=1e-6)
        if best:
            assert others == pytest.approx(advice.others, rel=1e-6)
            assert min(best, 3.0) == pytest.approx(advice.best.budget, rel=1e-6)


def test_after_the_announcement_it_says_what_the_device_says(calculator):
    for total, reward, value in ((2.0, 4.0, 1.0), (3.7, 10.0, 2.6), (3.7, 10.0, 4.0), (0.01, 5, 9)):
        task = {"total_budget": total, "reward_micro": int(reward * 1e6), "tick": 1}
        advice = advise(card(), task, value=value, lifetime_cap=3.0, left=3.0)
        others = calculator.evaluate("(all) => earnings.othersAt(...all)", [value, total, reward])
        assert others == pytest.approx(advice.others, rel=1e-6)


def test_privacy_loss_is_never_understated_and_hardly_overstated(calculator):
    table = epsilon_table()
    rng = np.random.default_rng(7)
    knots = np.geomspace(table.low, table.high, tables.POINTS)
    middles = np.sqrt(knots[:-1] * knots[1:])[::4]
    budgets = np.concatenate([np.exp(rng.uniform(*np.log([table.low, table.high]), 150)), middles])
    true = np.array([epsilon(rho=float(rho), delta=DELTA) for rho in budgets])
    found = curve(calculator, budgets)
    assert (found >= true).all()
    assert (found <= 1.01 * true).all()
    outside = np.array([1e-12, 1e-300, 1.001e5, 1e7, 1e20])
    proved = epsilon(rho=outside, delta=DELTA)
    assert (curve(calculator, outside) >= proved).all()
    assert (np.diff(curve(calculator, np.sort(budgets))) >= 0).all()


def test_a_table_without_its_margin_would_be_found_out(calculator):
    table = epsilon_table()
    bare = EpsilonTable(
        table.low, table.high, table.delta, tuple(each / tables._MARGIN for each in table.epsilons)
    )
    budgets = np.geomspace(table.low, table.high, 400)
    true = np.array([epsilon(rho=float(rho), delta=DELTA) for rho in budgets])
    assert (curve(calculator, budgets, bare) < true).any()


def test_a_cap_in_epsilon_becomes_a_budget_on_the_safe_side(calculator):
    table = epsilon_table()
    for wanted in (0.1, 1.0, 8.0, 50.0):
        rho = calculator.evaluate(
            """([low, high, delta, epsilons, wanted]) => {
              const of = earnings.epsilonCurve({low, high, delta, epsilons});
              return earnings.budgetWithin(wanted, of);
            }""",
            [table.low, table.high, table.delta, list(table.epsilons), wanted],
        )
        assert 0.98 * wanted < epsilon(rho=rho, delta=DELTA) <= wanted


def fill(page, **numbers):
    for label, number in numbers.items():
        page.locator(f"#{label}").fill(number)


def test_the_sentence_has_what_python_says(visitor, town):
    page = visitor()
    page.goto(f"/tasks/{town.announced.id}/earn")
    page.locator("#cap-unit").select_option("rho")
    fill(page, value="1.4", cap="0.9", budget="0.25")
    reward, total = town.announced.reward / 1e6, town.announced.total_budget
    task = {"total_budget": total, "reward_micro": town.announced.reward, "tick": 0}
    advice = advise(
        town.announced.card, task, value=1.4, lifetime_cap=0.9, left=0.9, budgets=[0.25]
    )
    choice = next(each for each in advice.choices if each.budget == 0.25)
    text = page.locator("#sentence").inner_text()
    assert f"you earn {choice.pay:.4g} credits" in text
    shown = float(page.locator("#loss").inner_text())
    proved = choice.epsilon_one_record
    assert proved <= shown <= 1.01 * proved + 1e-3
    whole = float(page.locator("#whole-loss").inner_text().replace(",", ""))
    assert choice.epsilon_whole_owner <= whole <= 1.01 * choice.epsilon_whole_owner + 1
    assert "27.8 % of your lifetime cap's rho" in text
    check_epsilon_units(text)
    assert f"Your best reply is {advice.best.budget:.4g} rho" in text
    page.get_by_role("button", name="Best reply").click()
    assert float(page.locator("#budget").input_value()) == pytest.approx(
        min(best_response(1.4, advice.others, reward=reward), 0.9), rel=1e-5
    )
    assert "This is your best reply." in page.locator("#sentence").inner_text()


def test_a_cap_that_binds_is_said(visitor, town):
    page = visitor()
    page.goto(f"/tasks/{town.open.id}/earn")
    page.locator("#cap-unit").select_option("rho")
    fill(page, value="1", cap="0.01")
    assert "Your cap keeps it from being more." in page.locator("#sentence").inner_text()
    fill(page, budget="0.02")
    assert "Your cap leaves 0.01 rho" in page.locator("#budget-error").inner_text()
    fill(page, used="0.01")
    assert "Your cap is used up" in page.locator("#sentence").inner_text()
    page.goto(f"/tasks/{town.announced.id}/earn")
    fill(page, value="1e9")
    assert "Your best reply is to sell nothing" in page.locator("#sentence").inner_text()


@pytest.mark.parametrize("wrong", ["", "0", "-1", "1e999"])
def test_what_cannot_be_a_value_gets_a_sentence(visitor, town, wrong):
    page = visitor()
    page.goto(f"/tasks/{town.open.id}/earn")
    page.locator("#value").fill(wrong)
    assert "must be a number above 0" in page.locator("#value-error").inner_text()
    assert page.locator("#value").get_attribute("aria-invalid") == "true"
    assert page.locator("#pay").inner_text() == "–"
    page.locator("#value").fill("2")
    assert page.locator("#value-error").inner_text() == ""
    assert page.locator("#pay").inner_text() != "–"


@pytest.mark.parametrize("state", ["open", "announced"])
def test_no_number_is_too_small_or_too_large_for_a_sentence(visitor, town, state):
    page = visitor()
    page.goto(f"/tasks/{getattr(town, state).id}/earn")
    for number, words in (
        ("1e-300", "What privacy is worth to you is too small: it must be at least 1e-12."),
        ("1e300", "What privacy is worth to you is too large: at most 1,000,000,000,000"),
        ("1e-12", ""),
        ("1e12", ""),
    ):
        page.locator("#value").fill(number)
        assert page.locator("#value-error").inner_text().startswith(words)
        assert (page.locator("#value-error").inner_text() == "") == (words == "")
        assert (page.locator("#pay").inner_text() == "–") == (words != "")
        assert "NaN" not in page.locator("main").inner_text()


def test_no_more_than_the_cards_most_can_be_tried(visitor, town):
    task = town.publish("best", reward="best", max_reward=50.0)
    page = visitor()
    page.goto(f"/tasks/{task.id}/earn")
    fill(page, reward="51")
    error = page.locator("#reward-error").inner_text()
    assert error == "The reward is too large: at most 50 can be tried."
    fill(page, reward="50")
    assert page.locator("#reward-error").inner_text() == ""


def test_others_who_sell_next_to_nothing_do_not_vanish(calculator):
    found = calculator.evaluate("earnings.othersAt(1e-12, 1e-6, 10)")
    assert found == pytest.approx(1e-25, rel=1e-9)


def test_a_reward_that_is_not_fixed_yet_can_be_tried(visitor, town):
    task = town.publish("best", reward="best", max_reward=50.0)
    page = visitor()
    page.goto(f"/tasks/{task.id}/earn")
    page.get_by_text("at most 50 credits").wait_for()
    assert float(page.locator("#reward").input_value()) == likely_reward(task.card, 2) < 50
    fill(page, cap="500", reward="50")
    fifty = page.locator("#pay").inner_text()
    fill(page, reward="5")
    assert float(page.locator("#pay").inner_text()) == pytest.approx(float(fifty) / 10, rel=1e-2)


VALUE, CAP, USED = "1.7320508", "6.2831853", "0.0271828"


def watch_everything(page):
    """Keep every byte that leaves the page, whichever way it goes."""
    said = []
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.on("Network.requestWillBeSent", lambda event: said.append(json.dumps(event)))
    session.on("Network.requestWillBeSentExtraInfo", lambda event: said.append(json.dumps(event)))
    session.on("Network.webSocketCreated", lambda event: said.append(json.dumps(event)))
    session.on("Network.webSocketFrameSent", lambda event: said.append(json.dumps(event)))
    page.on(
        "request",
        lambda request: said.append(
            f"{request.url} {request.headers} {request.post_data_buffer or b''!r}"
        ),
    )
    page.on("websocket", lambda socket: said.append(f"websocket {socket.url}"))
    return said


def type_and_change(page):
    for _ in range(2):
        for id, number in (("value", VALUE), ("cap", CAP), ("used", USED)):
            page.locator(f"#{id}").press("Control+a")
            page.locator(f"#{id}").press_sequentially(number)
            page.keyboard.press("Enter")
            page.keyboard.press("Tab")
        page.locator("#value-slider").press("ArrowRight")
        page.locator("#budget-slider").press("ArrowRight")
        page.locator("#cap-unit").select_option("rho")
        page.locator("#cap-unit").select_option("epsilon")
        page.get_by_role("button", name="Best reply").click()


def test_no_request_carries_the_owners_numbers(visitor, town):
    page = visitor(who=town.owner)
    said = watch_everything(page)
    page.goto(f"/tasks/{town.announced.id}/earn")
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)  # what was asked for before is told a little later
    before = len(said)
    type_and_change(page)
    page.locator("#value").fill(VALUE)
    page.wait_for_timeout(300)
    assert said[before:] == []
    page.get_by_role("link", name="Ledger").click()  # whatever a page sends as it goes
    page.wait_for_url("**/ledger")
    page.wait_for_load_state("networkidle")
    assert len(said) > before
    for secret in (VALUE, CAP, USED):
        assert not [each for each in said if secret in each]
    page.go_back()
    page.wait_for_load_state("networkidle")
    assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [
        0,
        0,
        "",
    ]
    page.reload()
    assert page.locator("#value").input_value() != VALUE
    assert not [each for each in said if VALUE in each or CAP in each]


def test_the_watch_sees_every_way_out(visitor, town):
    """What the test above would say if the page did send a number."""
    page = visitor()
    page.watch.expect("404|405|422|403|WebSocket|401")
    said = watch_everything(page)
    page.goto(f"/tasks/{town.open.id}/earn")
    ways = {
        "fetch": "fetch('/x?way=' + n)",
        "body": "fetch('/x', {method: 'POST', body: n})",
        "header": "fetch('/x', {headers: {'x-n': n}})",
        "beacon": "navigator.sendBeacon('/x', n)",
        "image": "new Image().src = '/x?i=' + n",
        "socket": "new WebSocket(location.origin.replace('http', 'ws') + '/x?s=' + n)",
    }
    for number, (name, way) in enumerate(ways.items()):
        secret = f"{VALUE}{number}"
        page.evaluate(f"(n) => {{ {way}; }}", secret)
        page.wait_for_timeout(200)
        assert [each for each in said if secret in each], name


def test_the_inputs_belong_to_no_form(calculator):
    assert calculator.evaluate(
        "[...document.querySelectorAll('#earn input, #earn select')]"
        ".every((each) => each.form === null && !each.name && each.autocomplete === 'off')"
    )
    assert calculator.locator("#earn input").count() >= 6


def test_it_can_be_used_by_keyboard(visitor, town):
    page = visitor("phone")
    page.goto(f"/tasks/{town.open.id}/earn")
    slider = page.locator("#budget-slider")
    slider.focus()
    page.keyboard.press("Home")
    assert "you sell nothing" in page.locator("#sentence").inner_text()
    page.keyboard.press("End")
    assert slider.get_attribute("aria-valuetext").endswith(" rho")
    assert page.locator("#sentence").get_attribute("aria-live") == "polite"
    top = float(page.locator("#budget").input_value())
    page.keyboard.press("PageDown")
    assert float(page.locator("#budget").input_value()) < top
    page.get_by_text("The curve as a table").focus()
    page.keyboard.press("Enter")
    rows = page.locator("#choices tr").all_inner_texts()
    assert len(rows) == 13
    assert len([row for row in rows if "(best)" in row]) == 1


def test_every_state_of_a_task_has_a_calculator(client, town, whole):
    for state in ("open", "announced", "settled", "training", "completed"):
        answer = client.get(f"/tasks/{getattr(town, state).id}/earn")
        assert answer.status_code == 200
        closed = "takes no more plans" in answer.text
        assert closed == (state not in ("open", "announced"))
    assert client.get(f"/tasks/{town.draft.id}/earn").status_code == 404


def test_it_is_readable_by_everybody(looked_at, town):
    def typed(page):
        page.locator("#value").fill("1.6")
        page.get_by_text("The curve as a table").click()

    looked_at(f"/tasks/{town.announced.id}/earn", "earn", ready=typed)


def test_figures_are_exact_in_the_page(client, town):
    text = client.get(f"/tasks/{town.announced.id}/earn").text
    assert f'data-total="{town.announced.total_budget!r}"' in text
    assert math.isfinite(town.announced.total_budget)


def test_the_table_is_made_once_however_many_ask_for_it(monkeypatch):
    made = []

    def slow(**_options):
        made.append(1)
        time.sleep(0.05)
        return np.ones(3)

    monkeypatch.setattr(tables, "epsilon", slow)
    tables._made.cache_clear()
    try:
        with ThreadPoolExecutor(8) as askers:
            found = list(askers.map(lambda _: tables.epsilon_table(), range(8)))
    finally:
        tables._made.cache_clear()
    assert (len(made), len(set(map(id, found)))) == (1, 1)
