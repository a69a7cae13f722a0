"""A buyer's pages without a browser: who may see them, what they say, what they write."""

from __future__ import annotations

import html
import itertools
import re
import secrets
import time
from dataclasses import replace

import pytest

from fedbourse.dashboard.card_form import STARTS, card_in
from fedbourse.dashboard.formatting import credits
from fedbourse.dashboard.forms import InvalidForm
from fedbourse.dashboard.steps import STEPS
from fedbourse.dashboard.what_if import predict, supposed_in
from fedbourse.game import equilibrium
from fedbourse.market import price_discovery
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.lifecycle import LIFE, Command
from fedbourse.market.records import State
from fedbourse.market.views import View
from fedbourse.tasks.card import Deadlines
from fedbourse.tasks.incentives import UNEARNED_INCENTIVES, UPFRONT_INCENTIVE, incentive
from fedbourse.testing.trading import BUYER
from fedbourse.units import micro_credits
from fedbourse.web.heavy import HeavyWork
from fedbourse.web.limits import Buckets
from web.fixtures import CREDITS, STATES, dump

FILLED = STARTS | {"goal": "Tell cats from dogs", "data": "A photograph."}


def posted(**changes):
    return {name: [text] for name, text in (FILLED | changes).items()}


def signed_in(client, town, person=None):
    town.sign_in(client, person or town.buyer)
    text = client.get("/").text
    return text.partition('name="csrf" value="')[2].partition('"')[0]


def post(client, town, path, *, accept=None, **fields):
    """Post a form of the session's own, with a key of its own unless told otherwise."""
    csrf = client.get("/").text.partition('name="csrf" value="')[2].partition('"')[0]
    headers = {"origin": "http://testserver"} | ({"accept": accept} if accept else {})
    said = {"csrf": csrf, "key": secrets.token_hex(8)} | fields
    return client.post(path, data=said, headers=headers)


# -- who may come ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/buy", "/buy/new"])
def test_a_buyers_pages_are_for_buyers(client, town, path):
    assert client.get(path).headers["location"].startswith("/sign-in?next=")
    town.sign_in(client, town.owner)
    assert client.get(path).status_code == 403
    client.cookies.clear()
    town.sign_in(client, town.buyer)
    assert client.get(path).status_code == 200


def test_another_buyers_steps_are_out_of_reach(client, town):
    task = town.publish("mine").id
    signed_in(client, town, town.people["another buyer"])
    assert client.get(f"/tasks/{task}/steps/cancel").status_code == 403
    answer = post(client, town, f"/tasks/{task}/steps/cancel", shown_micro="0")
    assert answer.status_code == 403
    assert town.trading.task(task).state is State.OPEN
    assert "steps/cancel" not in client.get(f"/tasks/{task}").text
    assert client.get(f"/tasks/{town.draft.id}/steps/open").status_code == 404


def test_the_model_in_training_is_its_buyers_alone(client, town):
    path = f"/tasks/{town.training.id}/open-model"
    assert client.get(path).status_code == 303
    for who in ("owner's token", "auditor", "another buyer"):
        client.cookies.clear()
        signed_in(client, town, town.people[who])
        assert client.get(path).status_code == 403
    client.cookies.clear()
    signed_in(client, town)
    found = client.get(path)
    assert (found.status_code, found.headers["fedbourse-round"]) == (200, "0")
    assert len(found.content) == 8 * town.training.card.dimension
    assert client.get(f"/tasks/{town.settled.id}/open-model").status_code == 409


def test_the_escrow_is_shown_to_its_buyer_and_not_to_strangers(client, town):
    path = f"/tasks/{town.training.id}"
    for each in (path, f"{path}/live"):
        assert "in-escrow" not in client.get(each).text
    signed_in(client, town)
    for each in (path, f"{path}/live"):
        assert 'Pay of rounds to come: <b id="in-escrow">10</b>' in client.get(each).text
    client.cookies.clear()
    signed_in(client, town, town.people["operator"])
    for each in (path, f"{path}/live"):
        assert 'In escrow: <b id="in-escrow">10</b>' in client.get(each).text


def test_no_page_tells_a_buyer_what_an_owner_said(client, town, whole):
    hidden_from_all = town.secrets_of("nobody")
    signed_in(client, town)
    paths = ["/buy", "/buy/new"]
    for name in (*STATES, "reviewed"):
        task = f"/tasks/{getattr(town, name).id}"
        paths += [task, f"{task}/live", *(f"{task}/steps/{step}" for step in STEPS)]
    for path in paths:
        text = client.get(path).text
        assert not [secret for secret in hidden_from_all if secret in text], path


def plain(text):
    """A page without what is new each time."""
    return re.sub(r'name="(key|csrf)" value="[^"]*"', "", text)


def test_no_page_changes_with_a_single_answer(client, town):
    task = town.training
    path = f"/tasks/{task.id}"
    paths = ["/buy", "/ledger", path, f"{path}/live", *(f"{path}/steps/{each}" for each in STEPS)]
    signed_in(client, town)
    before = {each: plain(client.get(each).text) for each in paths}
    for owner in town.owners:
        town.trading.update(owner, task)
        for each in paths:
            assert plain(client.get(each).text) == before[each], each
        assert post(client, town, f"{path}/verify").status_code == 200
    town.trading.advance()
    assert town.trading.task(task.id).round == 1
    assert '<b id="in-escrow">7.5</b>' in client.get(f"{path}/live").text


def test_a_training_that_is_cancelled_says_of_when_its_money_is(client, town):
    task = town.training.id
    before = town.trading.balance(BUYER.party)
    town.trading.update(town.owners[0], town.training)
    left = town.trading.balance(f"escrow:{task}")
    signed_in(client, town, town.people["operator"])
    said = client.get(f"/tasks/{task}/steps/cancel").text
    assert f"<b>{credits(left)} credits</b>" in said
    client.cookies.clear()
    signed_in(client, town)
    said = client.get(f"/tasks/{task}/steps/cancel").text
    assert "<b>10 credits</b>" in said
    assert "is not shown before the task has ended: it would tell you what single owners" in said
    assert hidden(said, "shown_micro") == "0"
    assert confirm(client, town, task, "cancel").status_code == 303
    assert town.trading.balance(BUYER.party) == before + left < before + 10 * CREDITS


# -- money and tasks ---------------------------------------------------------------------------


def test_a_buyer_sees_its_money_and_its_tasks(client, town, whole):
    signed_in(client, town)
    text = client.get("/buy").text
    for name in STATES:
        assert getattr(town, name).id in text
    balance = town.trading.balance(BUYER.party)
    assert f"<b>{credits(balance)}</b>" in text
    tasks = [getattr(town, name).id for name in (*STATES, "judged", "waiting")]
    held = sum(town.trading.balance(f"escrow:{task}") for task in tasks)
    assert f"<b>{credits(held)}</b>" in text


def test_a_buyer_sees_what_went_to_owners_and_what_to_the_fund(client, town):
    task = town.trading.in_training(town.owners, rounds=1)
    for owner in town.owners[1:]:
        town.trading.update(owner, task)
    town.trading.wait(task.card.deadlines.round_s)
    absent = town.trading.participation(town.ann, task.id)["allocation"]["payment_micro"]
    signed_in(client, town)
    text = client.get("/buy").text
    assert f'data-label="Paid">{credits(10 * CREDITS - absent)}<' in text
    assert f'data-label="Came back">0<small>{credits(absent)} to the fund</small>' in text
    assert f"<b>{credits(absent)}</b>" in text


def test_money_that_came_in_is_claimed_once(client, town):
    signed_in(client, town)
    before = town.trading.balance(BUYER.party)
    assert post(client, town, "/buy/deposit", reference="bank-1").status_code == 303
    assert town.trading.balance(BUYER.party) == before + 5 * CREDITS
    again = post(client, town, "/buy/deposit", reference="bank-1")
    assert "bank-1 was claimed before, on " in again.text
    assert "Nothing was added." in again.text
    assert town.trading.balance(BUYER.party) == before + 5 * CREDITS
    wrong = post(client, town, "/buy/deposit", reference="bank-2")
    assert wrong.status_code == 404
    assert "bank-2" in wrong.text
    assert "no money came in" in wrong.text.lower()


# -- a new task --------------------------------------------------------------------------------


def test_a_filled_form_becomes_the_card_that_it_says(client, town):
    signed_in(client, town)
    made = post(client, town, "/buy/new", **FILLED | {"reward": "7.25", "interest_s": "1.5 h"})
    assert made.status_code == 303
    card = town.trading.task(made.headers["location"].rpartition("/")[2]).card
    assert (card.goal, card.reward, card.dimension) == ("Tell cats from dogs", 7.25, 9)
    assert card.deadlines.interest_s == 5400
    assert card.assumptions.accuracy_value == 20
    assert card.min_participants == 2


def test_the_rules_of_a_task_are_those_of_the_form(client, town):
    signed_in(client, town)
    rules = {
        "vesting": "upfront", "unearned": "share", "cost": "linear", "min_budget": "0.01",
        "min_total_budget": "0.5", "review_s": "0",
    }  # fmt: skip
    made = post(client, town, "/buy/new", **FILLED | rules)
    card = town.trading.task(made.headers["location"].rpartition("/")[2]).card
    assert (card.vesting, card.unearned, card.cost) == ("upfront", "share", "linear")
    assert (card.min_budget, card.min_total_budget) == (0.01, 0.5)
    assert card.deadlines.review_s == 0
    assert STARTS["review_s"] == "10 min"
    assert card_in(posted()).deadlines.review_s == Deadlines().review_s


def test_the_form_says_what_each_rule_invites(client, town):
    signed_in(client, town)
    text = html.unescape(client.get("/buy/new").text)
    for sentence in (*UNEARNED_INCENTIVES.values(), UPFRONT_INCENTIVE):
        assert sentence[1:] in text
    assert town.market.fund_pays_to in text


@pytest.mark.parametrize("who", ["buyer", "owner's token", None])
@pytest.mark.parametrize("rules", [{}, {"unearned": "share"}, {"vesting": "upfront"}])
def test_both_sides_read_what_a_cards_rules_invite(client, town, rules, who):
    task = town.publish("rules", **rules)
    if who:
        signed_in(client, town, town.people[who])
    for page in (f"/tasks/{task.id}", f"/tasks/{task.id}/earn"):
        assert incentive(task.card)[1:] in html.unescape(client.get(page).text)
    text = html.unescape(client.get(f"/tasks/{task.id}").text)
    assert (town.market.fund_pays_to in text) == (task.card.vesting == "by-round")


def test_a_second_click_makes_no_second_draft(client, town):
    signed_in(client, town)
    first, second = (post(client, town, "/buy/new", **FILLED, key="one-key-only") for _ in "ab")
    assert first.headers["location"] == second.headers["location"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"goal": " "}, "goal"),
        ({"data": "x" * 2001}, "data"),
        ({"reward": "0"}, "reward"),
        ({"reward": ""}, "reward"),
        ({"reward": "nan"}, "reward"),
        ({"reward": "50"}, "reward"),  # above max_reward
        ({"reward_kind": "best", "max_reward": ""}, "max_reward"),
        ({"clip": "0"}, "clip"),
        ({"clip": "1e7"}, "clip"),
        ({"rounds": "1.5"}, "rounds"),
        ({"classes": "3"}, "model"),
        ({"model": "softmax", "classes": "0"}, "model"),
        ({"ceiling": "0.4"}, "ceiling"),
        ({"values_high": "1"}, "values_high"),
        ({"interest_s": "soon"}, "interest_s"),
        ({"interest_s": "400 d"}, "interest_s"),
        ({"layout": "{"}, "layout"),
        ({"layout": '{"columns": [], "label": "x"}'}, "layout"),
        ({"layout": '{"columns": [{"name": "a"}], "label": "x"}'}, "layout"),
        ({"layout": "[" * 100_000}, "layout"),
        ({"features": "2", "layout": '{"columns": [{"name": "\\ud800"}], "label": "x"}'}, "layout"),
        ({"features": "2", "layout": '{"columns": [{"name": "\\u0000"}], "label": "x"}'}, "layout"),
        ({"features": "2", "layout": '{"columns": [{"name": "\\u0001"}], "label": "x"}'}, "layout"),
        ({"reward": "9e-7"}, "reward"),
        ({"max_reward": "9e-7"}, "max_reward"),
        ({"min_participants": "1000001"}, "min_participants"),
        ({"round_s": "0.9 s"}, "round_s"),
        ({"review_s": "0.5 s"}, "review_s"),
        ({"min_budget": "-1"}, "min_budget"),
        ({"min_budget": "11"}, "min_budget"),  # above max_rho
        ({"min_total_budget": "nan"}, "min_total_budget"),
        ({"unearned": "burn"}, "unearned"),
        ({"sample": "1 x"}, "sample"),
        ({"owners": "100001"}, "owners"),
    ],
)
def test_what_is_wrong_is_said_at_its_field_and_nothing_is_lost(client, town, changes, field):
    signed_in(client, town)
    answer = post(client, town, "/buy/new", **FILLED | {"validation": "mine, all mine"} | changes)
    assert answer.status_code == 422
    assert f'id="f-{field}-error"' in answer.text
    assert "mine, all mine" in answer.text
    assert "Tell cats from dogs" in answer.text or "goal" in changes


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(InvalidForm) as found:
        card_in(posted(goal="", clip="-1", rounds="x", interest_s="x"))
    assert set(found.value.errors) == {"goal", "clip", "rounds", "interest_s"}


def test_what_is_typed_is_never_markup(client, town):
    signed_in(client, town)
    evil = "<script>alert(1)</script>\"'"
    answer = post(client, town, "/buy/new", **FILLED | {"goal": evil, "clip": evil, "sample": evil})
    assert answer.status_code == 422
    assert "<script>alert" not in answer.text


def test_old_tasks_are_found_further_back_and_money_is_of_all(client, town, monkeypatch):
    from fedbourse.dashboard import buyer_pages

    town.whole()
    town.sign_in(client, town.buyer)
    whole = client.get("/buy").text
    monkeypatch.setattr(buyer_pages, "ROWS", 3)
    seen, address, facts = [], "/buy", set()
    while address:
        text = client.get(address).text
        shown = re.findall(r'<th scope="row"><a href="/tasks/([0-9a-f]{24})"', text)
        assert 1 <= len(shown) <= 3
        seen += shown
        facts.add(re.search(r'<dl class="facts">.*?</dl>', text, re.DOTALL)[0])
        older = re.search(r'href="(/buy\?before=[0-9a-f]{24})"', text)
        address = older and older[1]
    assert seen == re.findall(r'<th scope="row"><a href="/tasks/([0-9a-f]{24})"', whole)
    assert len(seen) == len(set(seen)) > 3
    assert facts == {re.search(r'<dl class="facts">.*?</dl>', whole, re.DOTALL)[0]}
    with town.store.read() as tx:
        money = [each[2] for each in View(town.market, tx, BUYER).bought_tasks(limit=99)]
        total = View(town.market, tx, BUYER).bought()
    for name in ("held", "escrow", "released", "refunded", "fund", "earned"):
        assert getattr(total, name) == sum(getattr(each, name) for each in money), name
    assert not total.exact  # one of them is in training
    assert "No older task of yours" in client.get(f"/buy?before={seen[-1]}").text


# -- what it would buy -------------------------------------------------------------------------


def test_what_if_is_the_games_answer():
    supposed = supposed_in(posted(owners="100", reward="3"))
    result = predict(supposed)
    game = equilibrium(supposed.values(), reward=3.0)
    assert (result.participants, result.cutoff) == (game.count, game.cutoff)
    lowest, _, highest = result.earners
    assert lowest.pay == pytest.approx(game.payments.max())
    assert lowest.budget == pytest.approx(game.budgets.max())
    assert highest.pay == pytest.approx(game.payments.min())


def test_a_pasted_sample_is_spread_over_all_owners():
    found = supposed_in(posted(sample="3, 1;2", owners="6")).values()
    assert found.tolist() == pytest.approx([1, 1.25, 1.75, 2.25, 2.75, 3])


def test_the_best_reward_is_at_the_top_of_its_curve():
    found = predict(supposed_in(posted(reward_kind="best", max_reward="", owners="50")))
    assert found.reward == found.chosen.best_reward
    curve = found.curves["utility"]["precision"]
    assert found.chosen.best_utility >= max(curve) * (1 - 1e-5)
    assert found.chosen.utility == pytest.approx(found.chosen.best_utility, rel=1e-3)
    bounded = predict(supposed_in(posted(reward_kind="best", max_reward="0.01", owners="50")))
    assert bounded.reward == 0.01


def test_what_if_answers_scripts_with_a_part_and_others_with_the_page(client, town):
    signed_in(client, town)
    part = post(client, town, "/buy/what-if", accept="application/json", **FILLED)
    assert part.status_code == 200
    assert part.json()["errors"] == {}
    assert "owners who would take part" in part.json()["html"]
    assert "<html" not in part.json()["html"]
    whole = post(client, town, "/buy/what-if", **FILLED | {"reward": "3.5"})
    assert "<html" in whole.text
    assert 'value="3.5"' in whole.text


def test_what_if_says_that_it_does_not_know_the_largest_budget(client, town):
    signed_in(client, town)
    words = "This page does not model that bound"
    few = {"owners": "3", "reward": "20", "values_high": "1.1"}
    for changes, said in (
        ({}, False),
        (few, False),
        (few | {"max_rho": "1"}, True),
        (few | {"max_rho": "1", "min_participants": "9"}, True),
    ):
        answer = post(client, town, "/buy/what-if", **FILLED | changes)
        assert (words in answer.text) == said, changes
        assert ("the task would be cancelled" in answer.text) == ("min_participants" in changes)
    assert answer.text.index('id="what-if" tabindex="0"')


def test_sentences_keep_their_capitals(client, town):
    signed_in(client, town)
    answer = post(client, town, "/buy/new", **FILLED | {"layout": "[1]"})
    assert "Should be a JSON object with columns and label." in answer.text


def test_what_if_says_what_is_wrong(client, town):
    signed_in(client, town)
    for changes, field in (
        ({"rounds": "0"}, "rounds"),
        ({"accuracy_value": "-1"}, "accuracy_value"),
    ):
        said = post(client, town, "/buy/what-if", accept="application/json", **FILLED | changes)
        assert list(said.json()["errors"]) == [field]
        assert said.json()["html"] == ""


def test_what_if_needs_the_sessions_own_form(client, town):
    signed_in(client, town)
    headers = {"origin": "http://testserver", "accept": "application/json"}
    wrong = client.post("/buy/what-if", data=FILLED | {"csrf": "other"}, headers=headers)
    assert wrong.status_code == 403


@pytest.fixture
def hurried(client, town):
    """Somebody who may have two things computed, and then nothing for long."""
    town.app.state.service = replace(
        town.app.state.service,
        heavy=HeavyWork(
            Buckets(per_s=1e-3, burst=2, now_s=time.monotonic), at_once=8, strangers_at_once=4
        ),
    )
    return client


def test_what_is_computed_at_length_has_a_measure_of_its_own(hurried, town):
    client, task = hurried, town.training.id
    signed_in(client, town)
    for _ in range(2):
        said = post(client, town, "/buy/what-if", accept="application/json", **FILLED)
        assert said.status_code == 200
    refused = post(client, town, "/buy/what-if", accept="application/json", **FILLED)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    for path in ("/buy/what-if", f"/tasks/{task}/verify"):
        page = post(client, town, path, **FILLED)
        assert page.status_code == 429
        assert "asks for too much heavy work; wait a second" in page.text
    assert client.get("/buy").status_code == 200
    client.cookies.clear()
    signed_in(client, town, town.people["auditor"])
    assert post(client, town, f"/tasks/{task}/verify").status_code == 200


# -- steps -------------------------------------------------------------------------------------


def hidden(text, name):
    return re.search(rf'name="{name}" value="([^"]*)"', text)[1]


def confirm(client, town, task, step, **fields):
    shown = client.get(f"/tasks/{task}/steps/{step}").text
    fields = {"shown_micro": hidden(shown, "shown_micro")} | fields
    return post(client, town, f"/tasks/{task}/steps/{step}", **fields)


@pytest.mark.parametrize("state", STATES)
def test_a_step_can_be_confirmed_where_the_life_cycle_allows_it(client, town, state):
    signed_in(client, town)
    task = getattr(town, state).id
    text = client.get(f"/tasks/{task}").text
    for step in STEPS:
        rule = LIFE.get((State(state), Command(step)))
        unsigned = (state, step) == ("settled", "train")  # one owner may still decline
        assert (f"/steps/{step}" in text) == (rule is not None and not unsigned)
        shown = client.get(f"/tasks/{task}/steps/{step}")
        assert shown.status_code == 200
        if rule is None:
            assert "This cannot be done now" in shown.text
            assert "shown_micro" not in shown.text


def test_looking_at_a_step_changes_nothing_and_holds_up_no_writer(client, town, whole, monkeypatch):
    signed_in(client, town)
    before = dump(town.store)
    monkeypatch.setattr(town.store, "begin", lambda: pytest.fail("a look began a write"))
    for state, step in itertools.product(STATES, STEPS):
        assert client.get(f"/tasks/{getattr(town, state).id}/steps/{step}").status_code == 200
    assert dump(town.store) == before


def test_publishing_shows_what_it_reserves_before_it_does(client, town):
    signed_in(client, town)
    task = town.draft.id
    before = town.trading.balance(BUYER.party)
    text = client.get(f"/tasks/{task}/steps/open").text
    assert hidden(text, "shown_micro") == str(10 * CREDITS)
    assert "<b>10 credits</b>" in text
    assert f">{before // CREDITS:,}</td>" in text
    assert f">{before // CREDITS - 10:,}</td>" in text
    assert town.market.fund_pays_to in text
    assert confirm(client, town, task, "open").status_code == 303
    assert town.trading.balance(BUYER.party) == before - 10 * CREDITS
    assert town.trading.balance(f"escrow:{task}") == 10 * CREDITS


def test_no_step_takes_more_than_its_page_said(client, town):
    signed_in(client, town)
    task = town.draft.id
    refused = confirm(client, town, task, "open", shown_micro="9999999")
    assert refused.status_code == 409
    assert "more than the page said" in refused.text
    assert town.trading.task(task).state is State.DRAFT


def test_an_announcement_shows_what_it_releases(client, town):
    signed_in(client, town)
    task = interested(town, town.publish("best", reward="best", max_reward=20.0))
    before = town.trading.balance(BUYER.party)
    text = client.get(f"/tasks/{task.id}/steps/announce").text
    assert confirm(client, town, task.id, "announce").status_code == 303
    reward = town.trading.task(task.id).reward
    assert f"fixed at <b>{credits(reward)} credits</b>" in text
    assert f"<b>{credits(20 * CREDITS - reward)} credits</b></li>" in text
    assert town.trading.balance(BUYER.party) == before + 20 * CREDITS - reward


@pytest.mark.parametrize("reward", [10.0, "best-reported"])
def test_a_preview_does_not_change_with_the_value_that_an_owner_told(client, town, reward):
    signed_in(client, town)
    max_reward = 20.0 if reward == "best-reported" else None
    pages = []
    for values in ((1.1, 1.2, 1.3), (1.1, 1.2, 4.9)):
        task = town.publish("told", reward=reward, max_reward=max_reward)
        for owner, value in zip(town.owners, values, strict=True):
            said = {"value": value, "previous": task.card.digest}
            town.trading.do(owner_commands.register_interest, owner.caller, task.id, **said)
        text = plain(client.get(f"/tasks/{task.id}/steps/announce").text).replace(task.id, "")
        pages.append(re.sub(r">[0-9,.]+</td>", "", text))
        town.trading.do(buyer_commands.cancel, BUYER, task.id)
    assert pages[0] == pages[1]
    assert ("because a look at it after each owner" in pages[0]) == (reward == "best-reported")


def test_upfront_pay_must_be_confirmed_with_what_it_risks(client, town):
    signed_in(client, town)
    task = town.trading.do(
        buyer_commands.create, BUYER, replace(town.draft.card, vesting="upfront")
    ).id
    text = html.unescape(client.get(f"/tasks/{task}/steps/open").text)
    assert UPFRONT_INCENTIVE in text
    assert 'name="confirm_upfront"' in text
    refused = confirm(client, town, task, "open")
    assert refused.status_code == 409
    assert 'id="f-confirm_upfront-error"' in refused.text
    assert town.trading.task(task).state is State.DRAFT
    assert 'name="confirm_upfront"' not in client.get(f"/tasks/{town.draft.id}/steps/open").text
    assert confirm(client, town, task, "open", confirm_upfront="true").status_code == 303
    assert town.trading.task(task).state is State.OPEN


def test_a_buyer_may_look_and_still_cancel_once_everybody_has_signed(client, town):
    signed_in(client, town)
    task = town.reviewed
    text = client.get(f"/tasks/{task.id}").text
    assert "All owners have signed. Training starts at" in text
    assert "you may still cancel" in text
    assert "in 10 minutes" in text
    assert f"/tasks/{task.id}/steps/train" in text
    assert "This ends the time for review" in client.get(f"/tasks/{task.id}/steps/train").text
    client.cookies.clear()
    assert "until then the buyer may still cancel" in client.get(f"/tasks/{task.id}").text
    signed_in(client, town)
    assert confirm(client, town, task.id, "train").status_code == 303
    assert town.trading.task(task.id).state is State.TRAINING


def test_a_task_says_that_its_price_is_discovered_again(client, town):
    task = town.settled
    town.trading.decide(town.ann, task.id, accept=False)
    with town.store.begin() as tx:
        price_discovery.restart(town.market, tx, task.id)
    again = town.trading.task(task.id)
    assert again.state is State.ANNOUNCED
    text = client.get(f"/tasks/{task.id}").text
    assert "1 owner did not sign its terms. The price is discovered again without it" in text
    assert "1 out: 1 declined or did not sign" in text
    signed_in(client, town, town.owner)
    text = client.get(f"/tasks/{task.id}").text
    assert "Your part: your device declined the terms" in text
    assert "the price was discovered again without you" in text


def moves_on(page):
    """Return what a page says would move, by where to."""
    moves = re.findall(r'"place">([^<]*)</span> <b>([0-9.]*) credits', html.unescape(page))
    return {target: micro_credits(amount) for target, amount in moves}


@pytest.mark.parametrize(
    ("unearned", "place"), [("fund", "the market's fund"), ("share", "owners"), ("refund", None)]
)
def test_cancelling_shows_where_the_pay_of_absentees_goes(client, town, unearned, place):
    task = town.trading.in_training(town.owners, unearned=unearned)
    for owner in town.owners[1:]:
        town.trading.update(owner, task)
    town.trading.wait(task.card.deadlines.round_s)  # the first owner missed a round
    task = town.trading.task(task.id)
    assert task.round == 1
    signed_in(client, town)
    path = f"/tasks/{task.id}/steps/cancel"
    before = plain(client.get(path).text)
    absent = town.trading.participation(town.ann, task.id)["allocation"]["payment_micro"] // 4
    assert moves_on(before) == {"your account": 7_500_000}
    client.cookies.clear()
    signed_in(client, town, town.people["operator"])
    amounts = moves_on(client.get(path).text)
    assert set(amounts) == {"the buyer's account"} | ({place} if place else set())
    if place:
        assert amounts[place] == pytest.approx(absent, abs=3)
    assert sum(amounts.values()) + sum(
        town.trading.participation(owner, task.id)["allocation"]["payment_micro"] // 4
        for owner in town.owners[1:]
    ) == pytest.approx(10 * CREDITS, abs=3)


def interested(town, task):
    for owner in town.owners:
        said = {"value": None, "previous": task.card.digest}
        town.trading.do(owner_commands.register_interest, owner.caller, task.id, **said)
    return task


def test_a_cancelled_task_gives_back_what_its_page_said(client, town):
    signed_in(client, town)
    task = town.settled.id
    before = town.trading.balance(BUYER.party)
    assert "<b>10 credits</b>" in client.get(f"/tasks/{task}/steps/cancel").text
    assert confirm(client, town, task, "cancel", reason="too dear").status_code == 303
    assert town.trading.balance(BUYER.party) == before + 10 * CREDITS
    assert "too dear" in client.get(f"/tasks/{task}").text


def test_a_reason_that_is_too_long_is_said_at_its_field(client, town):
    signed_in(client, town)
    task = town.open.id
    reason = "so long " * 51
    answer = confirm(client, town, task, "cancel", reason=reason)
    assert answer.status_code == 422
    assert 'id="f-reason-error"' in answer.text
    assert f'value="{reason}"' in answer.text
    assert "Cancel the task</button>" in answer.text
    assert town.trading.task(task).state is State.OPEN
    other = post(client, town, f"/tasks/{task}/steps/cancel", shown_micro="much")
    assert other.status_code == 422
    assert "Shown micro: should be a valid integer" in other.text


def test_what_cannot_be_done_says_why(client, town):
    signed_in(client, town)
    alone = town.publish("nobody comes")
    for task, step, why in (
        (alone.id, "announce", "the card needs 2 participants, and 0 are interested"),
        (town.settled.id, "train", "have neither signed nor declined"),
        (town.completed.id, "cancel", "it is completed"),
    ):
        text = html.unescape(client.get(f"/tasks/{task}/steps/{step}").text)
        assert why in text
        assert "shown_micro" not in text
        assert post(client, town, f"/tasks/{task}/steps/{step}", shown_micro="0").status_code == 409


def test_a_poor_buyer_is_told_so(client, town):
    card = replace(town.draft.card, reward=1e6)
    task = town.trading.do(buyer_commands.create, BUYER, card)
    signed_in(client, town)
    text = client.get(f"/tasks/{task.id}/steps/open").text
    assert "opening a task reserves its whole reward, 1000000.000000 credits" in text


def test_the_operator_may_cancel_and_nothing_else(client, town):
    task = town.publish("unwanted").id
    signed_in(client, town, town.people["operator"])
    text = client.get(f"/tasks/{task}").text
    assert "/steps/cancel" in text
    assert "/steps/announce" not in text
    assert confirm(client, town, task, "cancel").status_code == 303
    assert town.trading.task(task).state is State.CANCELLED


def test_every_step_of_the_life_cycle_for_buyers_has_a_button(client, town):
    steps = {command for (_, command), rule in LIFE.items() if "buyer" in rule.by}
    steps -= {Command.OPEN_ROUND}  # by the buyer's machine, in every round
    assert {step.command for step in STEPS.values()} == steps


def test_a_draft_is_published_from_its_page(client, town):
    signed_in(client, town)
    made = town.trading.do(buyer_commands.create, BUYER, town.draft.card)
    assert confirm(client, town, made.id, "open").status_code == 303
    assert town.trading.task(made.id).state is State.OPEN
