"""The report of a trade that the market carried out: the demo's page, with what may be known."""

from __future__ import annotations

import re
from dataclasses import asdict

import pytest

from fedbourse.dashboard.report_pages import OWNERS_SHOWN, served_report
from fedbourse.errors import Conflict
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.views import View
from fedbourse.report import trade_body, trade_page
from fedbourse.tasks.layout import Column, Layout
from fedbourse.testing.trading import AUDITOR, BUYER, caller
from fedbourse.units import credits_text
from web.fixtures import replied

PEOPLE = ("stranger", "owner's token", "another owner's token", "buyer", "auditor", "operator")


def report_of(town, who, task=None):
    with town.store.read() as tx:
        return served_report(View(town.market, tx, who), (task or town.completed).id)


def page_of(client, town, person):
    if person.token:
        town.sign_in(client, person)
    answer = client.get(f"/tasks/{town.completed.id}/report")
    assert answer.status_code == 200
    return answer.text


@pytest.mark.parametrize("who", PEOPLE)
def test_everybody_sees_what_the_log_says(client, town, who):
    text = page_of(client, town, town.people[who])
    reward = credits_text(town.completed.reward)
    assert f"<b>{reward}</b> credits" in text
    assert "<b>3</b> of 3 owners" in text
    assert f"earned {reward} + to the fund 0.000000 + refunded 0.000000" in text
    assert re.search(r"settled at tick \d+, converged; no owner could gain more than", text)
    assert "6 of 6 that were requested" in text
    assert "How accurate the model is: the buyer evaluates it" in text
    assert "How many updates arrived, round by round" in text


@pytest.mark.parametrize("who", PEOPLE)
def test_lines_are_for_those_who_may_see_them(client, town, who):
    text = page_of(client, town, town.people[who])
    seen = {owner.name for owner in town.owners if f"<td>{owner.name}</td>" in text}
    everybody = {owner.name for owner in town.owners}
    allowed = {"owner's token": {town.ann.name}, "auditor": everybody, "operator": everybody}
    assert seen == allowed.get(who, set())
    assert ("only an owner itself, auditors and the operator" in text) == (not seen)
    assert ("Pay of each participant" in text) == (seen == everybody)
    assert ("predicted by the model" in text) == (seen == everybody)
    assert ("<h3>Ledger</h3>" in text) == (seen == everybody)


def test_an_owner_reads_that_there_are_others(client, town):
    text = page_of(client, town, town.owner)
    assert "and 2 others, whose allocations only they, auditors and the operator see" in text
    client.cookies.clear()
    assert "whose allocations only they" not in page_of(client, town, town.people["auditor"])


def test_the_cards_layout_is_readable(town):
    report = report_of(town, AUDITOR)
    layout = Layout((Column("age", 40.0, 10.0), Column("sex")), "ill", ("no", "yes"))
    report["card"] |= {"layout": asdict(layout)}
    body = str(trade_body(report))
    assert "columns: age (shift 40.0, scale 10.0), sex (shift 0.0, scale 1.0); label: ill" in body
    assert "classes: no, yes</td>" in body
    assert "interest s: 86400.0, tick s: 60.0" in body


def test_its_money_is_the_books(town):
    report = report_of(town, AUDITOR)
    money = report["money"]
    assert money["earned_micro"] == sum(owner["earned_micro"] for owner in report["owners"])
    assert money["reward_micro"] == town.completed.reward
    paid = sum(town.trading.balance(owner.name) for owner in town.owners)
    assert paid == money["earned_micro"]
    assert money["transfers"] == 1 + 6


def test_a_trade_that_was_cancelled_in_training_has_a_report(client, town):
    task = town.training
    with town.store.read() as tx, pytest.raises(Conflict, match="has ended; this task is"):
        served_report(View(town.market, tx, AUDITOR), task.id)
    assert client.get(f"/tasks/{task.id}/report").status_code == 409
    for owner in town.owners[:2]:
        town.trading.update(owner, task)
    town.trading.do(buyer_commands.cancel, BUYER, task.id, reason="enough")
    report = report_of(town, AUDITOR, task)
    money = report["money"]
    assert 0 < money["earned_micro"] < money["reward_micro"]
    assert money["earned_micro"] + money["refunded_micro"] == money["reward_micro"]
    assert client.get(f"/tasks/{task.id}/report").status_code == 200


def test_the_price_was_discovered_again_without_who_declined(town):
    trading = town.trading
    task = trading.settled(town.owners, rounds=2)
    for owner in town.owners:
        trading.decide(owner, task.id, accept=owner is not town.owners[2])
    trading.advance()
    replied(trading, town.owners[:2], task.id)
    for owner in town.owners[:2]:
        trading.decide(owner, task.id)
    trading.advance()
    for _ in range(2):
        task = trading.task(task.id)
        for owner in town.owners[:2]:
            trading.update(owner, task)
        trading.advance()
    report = report_of(town, AUDITOR, task)
    assert report["participants"] == len(report["owners"]) == 2
    assert "one owner did not sign the terms" in report["declined"][0]
    assert (report["restarts"], report["out"]["struck_out"]) == (1, 1)
    money = report["money"]
    assert money["earned_micro"] == money["reward_micro"]  # all of R is allocated


@pytest.mark.parametrize(
    ("unearned", "place"), [("fund", "fund"), ("refund", "refunded"), ("share", "earned")]
)
def test_the_pay_of_absentees_went_where_the_card_says(town, unearned, place):
    task = town.trading.in_training(town.owners, rounds=1, unearned=unearned)
    for owner in town.owners[1:]:
        town.trading.update(owner, task)
    town.trading.wait(task.card.deadlines.round_s)
    absent = town.trading.participation(town.ann, task.id)["allocation"]["payment_micro"]
    report = report_of(town, AUDITOR, task)
    money = report["money"]
    amounts = {"fund": 0, "refunded": 0, "earned": money["reward_micro"] - absent}
    amounts[place] += absent
    assert {name: money[f"{name}_micro"] for name in amounts} == amounts
    text = str(trade_body(report))
    assert f"to the fund {credits_text(amounts['fund'])}" in text
    assert f"refunded {credits_text(amounts['refunded'])}" in text


def test_tasks_that_never_trained_have_none(client, town):
    assert client.get(f"/tasks/{town.open.id}/report").status_code == 409
    assert client.get(f"/tasks/{town.draft.id}/report").status_code == 404


def test_one_template_lays_out_both(town):
    report = report_of(town, AUDITOR)
    body = str(trade_body(report))
    assert body in trade_page(report)
    for forbidden in ("style=", "<style", "<script", " on", "href=", "src="):
        assert forbidden not in re.sub(r">[^<]*<", "><", body), forbidden


def test_a_buyers_words_are_never_markup(town):
    evil = "</svg><script>alert(1)</script>"
    report = report_of(town, AUDITOR)
    report["card"]["goal"] = evil
    report["owners"][0]["owner"] = evil
    report["accuracy"] |= {"measured": 0.5, "validation_records": 9, "references": {evil: 0.6}}
    report["rounds"] = [each | {"accuracy": 0.5} for each in report["rounds"]]
    assert "<script>" not in trade_page(report)


def test_no_matplotlib_is_needed(town, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "<svg" in trade_page(report_of(town, AUDITOR))


def test_very_many_rounds_and_owners_are_cut_short(town):
    report = report_of(town, AUDITOR)
    report["rounds"] = [{"number": n, "updates": 3} for n in range(20_000)]
    assert len(trade_body(report)) < 100_000
    assert len(report["owners"]) <= OWNERS_SHOWN


def test_nobody_elses_salt_or_value_is_in_the_document(town):
    report = repr(report_of(town, caller(town.ann.name)))
    assert not [secret for secret in town.secrets_of(town.ann.name) if secret in report]


def test_a_report_is_readable_by_everybody(looked_at, town):
    path = f"/tasks/{town.completed.id}/report"
    looked_at(path, "report", who=town.people["auditor"])


def test_a_report_is_readable_by_strangers(looked_at, town):
    looked_at(f"/tasks/{town.completed.id}/report", "report-public")
