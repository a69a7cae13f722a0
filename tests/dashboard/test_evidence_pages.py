"""Evidence on pages: the form, the card, what it will be able to tell, and what it found."""

from __future__ import annotations

import pytest

from dashboard.test_buyer_pages import post
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.views import View
from fedbourse.testing.trading import BUYER, card
from market.evidence_trade import REFERENCE, VALUES, WRONG, changes, trained

HASH = "ab" * 32
FORM = {
    "goal": "Predict.", "data": "A record is a row.", "features": "9", "classes": "2",
    "step_size": "1", "rounds": "8", "samples": "100", "clip": "1", "reward": "2",
    "accuracy_value": "20", "chance": "0.5", "ceiling": "0.9", "values_low": "1",
    "values_high": "5", "interest_s": "24 h", "plans_s": "1 h", "tick_s": "60 s",
    "terms_s": "1 h", "review_s": "0", "round_s": "5 min",
}  # fmt: skip


def in_training(town, reference=REFERENCE, values=(0.2, *VALUES), **items):
    owners = town.trading.owners(*values)
    return town.trading.in_training(owners, **changes(reference, **items)), owners


@pytest.fixture
def judged(town):
    """A task of which one device sent noise alone."""
    task, owners = in_training(town)
    return trained(town.trading, task, owners, without_data=[0]), owners


def visitor_of(town, name, *scopes):
    return town.holder(name, *(scopes or [name.partition(":")[0]]))


def sign_in(client, town, person):
    client.cookies.clear()
    assert town.sign_in(client, person).status_code == 303


def post_card(client, town, **items):
    sign_in(client, town, town.buyer)
    return post(client, town, "/buy/new", **FORM, **items)


def test_a_card_with_evidence_is_written_in_the_form_and_shown_in_words(client, town):
    items = {"evidence": "on", "reference": HASH, "records": "400", "hold_rounds": "4"}
    made = post_card(client, town, **items, reveal_to_owners="yes")
    assert made.status_code == 303, made.text
    page = client.get(made.headers["location"]).text
    words = " ".join(page.split())
    for sentence in (
        "updates are compared with 400 records of the buyer's own",
        "Pay is held for blocks of 4 rounds",
        "loses it with a probability of at most 0.01",
        "then auditors see the records, and so do owners who trained",
        HASH,
    ):
        assert sentence in words
    outlook = client.get(f"{made.headers['location']}/evidence").text
    assert "its reference records are missing" in outlook
    assert "fedbourse task reference" in outlook
    step = client.get(f"{made.headers['location']}/steps/open").text
    assert "fedbourse task reference" in step


@pytest.mark.parametrize(
    ("items", "field"),
    [
        ({"records": "400"}, "reference"),
        ({"reference": HASH}, "records"),
        ({"reference": "abc", "records": "400"}, "reference"),
        ({"reference": HASH, "records": "400", "alpha": "0.9"}, "alpha"),
        ({"reference": HASH, "records": "3"}, "records"),
    ],
)
def test_what_is_wrong_with_evidence_is_said_at_its_field(client, town, items, field):
    made = post_card(client, town, evidence="on", **items)
    assert made.status_code == 422
    assert f'id="f-{field}-error"' in made.text


def test_evidence_whose_dismissals_pay_the_buyer_is_refused(client, town):
    items = {"evidence": "on", "reference": HASH, "records": "400", "unearned": "refund"}
    made = post_card(client, town, **items)
    assert made.status_code == 422
    assert "so that nobody gains from a dismissal" in made.text


def test_evidence_is_off_until_it_is_asked_for(client, town):
    made = post_card(client, town, reference=HASH, records="400")
    assert made.status_code == 303
    assert "Evidence" not in client.get(made.headers["location"]).text


def test_the_buyer_is_told_before_training_what_cannot_be_judged(client, town):
    owners = town.trading.owners(*(1.0 + 0.001 * place for place in range(12)))
    task = town.trading.settled(owners, **changes())
    outlook = town.trading.see(View.evidence_outlook, BUYER, task.id)
    assert 0 < outlook.least_budget < 1
    sign_in(client, town, town.buyer)
    page = " ".join(client.get(f"/tasks/{task.id}/evidence").text.split())
    assert f"sells less than {outlook.least_budget:g} rho" in page
    assert "What evidence can tell" in client.get(f"/tasks/{task.id}").text
    for owner in owners:
        town.trading.decide(owner, task.id)
    step = " ".join(client.get(f"/tasks/{task.id}/steps/train").text.split())
    assert f"Evidence: {outlook.summary}" in step
    sign_in(client, town, town.owner)
    assert "sells less than" not in client.get(f"/tasks/{task.id}/evidence").text


def test_the_step_that_publishes_a_card_says_what_evidence_can_tell(client, town):
    items = {name: item for name, item in changes().items() if name != "reference"}
    task = town.trading.do(buyer_commands.create, BUYER, card(**items))
    sign_in(client, town, town.buyer)
    path = f"/tasks/{task.id}/steps/open"
    assert "its reference records are missing" in client.get(path).text
    town.trading.do(buyer_commands.put_reference, BUYER, task.id, content=REFERENCE)
    assert "cannot be judged by itself. The card buys budgets of any size" in client.get(path).text


def test_each_sees_of_what_was_found_what_is_its_own(client, town, judged):
    task, owners = judged
    path = f"/tasks/{task.id}/evidence"
    names = {each.name for each in owners}
    trained_names = {e.owner for e in town.trading.allocations(task.id) if e.trained}

    def seen(person):
        sign_in(client, town, person)
        answer = client.get(path)
        return answer.status_code, {name for name in names if name in answer.text}, answer.text

    status, named, text = seen(town.buyer)
    assert (status, named) == (200, set())
    assert "do not follow the reference records" in text
    assert "Evidence does not know why" in text
    assert "What evidence found" in client.get(f"/tasks/{task.id}").text
    status, named, text = seen(visitor_of(town, owners[1].name))
    assert (status, named) == (200, {owners[1].name})
    assert "Your device" in text
    status, named, _ = seen(town.people["auditor"])
    assert (status, named) == (200, trained_names)
    assert seen(visitor_of(town, "owner:stranger"))[0] == 403
    answer = client.post(f"/tasks/{task.id}/verify", data={})
    assert answer.status_code == 403  # no form of ours


def test_evidence_is_recomputed_by_the_page_of_an_auditor(client, town, judged):
    task, _ = judged
    sign_in(client, town, town.people["auditor"])
    text = post(client, town, f"/tasks/{task.id}/verify").text
    assert "none differs" in text
    assert "What evidence found follows from" in text
    assert "lead to the same scores" in text


def test_a_reference_that_does_not_fit_is_called_so(client, town):
    task, owners = in_training(town, WRONG, VALUES)
    task = trained(town.trading, task, owners)
    sign_in(client, town, town.buyer)
    text = client.get(f"/tasks/{task.id}/evidence").text
    assert "The reference does not fit." in text
    assert "Nobody was dismissed" in text


def test_nothing_is_shown_while_devices_train(client, town):
    task, owners = in_training(town)
    task = trained(town.trading, task, owners, without_data=[0], until=3)
    for person in (town.buyer, town.people["auditor"], visitor_of(town, owners[1].name)):
        sign_in(client, town, person)
        text = client.get(f"/tasks/{task.id}/evidence").text
        assert "told once the task has ended" in text
        assert "score" not in text.replace("A score that is seen earlier", "")


def test_pages_of_evidence_look_right(town, looked_at, judged):
    task, owners = judged
    path = f"/tasks/{task.id}/evidence"
    looked_at(path, "evidence-buyer", who=town.buyer)
    looked_at(path, "evidence-owner", who=visitor_of(town, owners[1].name))
    looked_at(path, "evidence-auditor", who=town.people["auditor"])
    looked_at(f"/tasks/{task.id}", "evidence-task", who=town.buyer)
    twelve = town.trading.owners(*(1.0 + 0.001 * place for place in range(12)))
    settled = town.trading.settled(twelve, **changes())
    looked_at(f"/tasks/{settled.id}/evidence", "evidence-outlook", who=town.buyer)
    items = {name: item for name, item in changes().items() if name != "reference"}
    draft = town.trading.do(buyer_commands.create, BUYER, card(**items))
    looked_at(f"/tasks/{draft.id}/evidence", "evidence-missing", who=town.buyer)

    def unfolded(page):
        page.get_by_text("Your records, and how they are compared").click()

    looked_at("/buy/new", "evidence-form", who=town.buyer, ready=unfolded)
