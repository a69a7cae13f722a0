"""The ledger's pages: who sees which account, money taken out once, and books verified."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import update

from fedbourse.dashboard import ledger_pages, verify_pages
from fedbourse.dashboard.formatting import credits
from fedbourse.ledger import OUTSIDE
from fedbourse.storage.schema import accounts, replies

ROW = re.compile(r'<td class="num" data-label="Balance">([^<]*)</td>')


def fields_of(client, path):
    text = client.get(path).text
    return {"csrf": value_of(text, "csrf"), "key": value_of(text, "key")}


def value_of(text, name):
    return text.rpartition(f'name="{name}" value="')[2].partition('"')[0]


def enter(client, town, person):
    text = client.get("/").text
    token = {"csrf": value_of(text, "csrf")} if 'name="csrf"' in text else {}
    assert town.sign_in(client, person, **token).status_code == 303


@pytest.mark.parametrize(
    ("who", "sees"),
    [
        ("owner's token", {"owner:000000"}),
        ("another owner's token", {"owner:zed"}),
        ("buyer", {"buyer:acme"}),
        ("auditor", None),
        ("operator", None),
    ],
)
def test_everybody_sees_the_accounts_that_are_theirs_to_see(client, town, whole, who, sees):
    escrow = f"escrow:{town.training.id}"
    every = ["owner:000000", "owner:zed", "buyer:acme", escrow, OUTSIDE]
    for account in every:
        assert client.get(f"/ledger/{account}").status_code == 303
    enter(client, town, town.people[who])
    assert client.get("/ledger").status_code == 200
    for account in every:
        allowed = sees is None or account in sees
        assert client.get(f"/ledger/{account}").status_code == (200 if allowed else 403)
    listed = f'href="/ledger/{escrow}"' in client.get("/ledger").text
    assert listed == (sees is None)


@pytest.mark.parametrize("who", ["owner's token", "another buyer", "auditor"])
def test_the_fund_is_everybodys_to_see_and_nobodys_to_take(client, town, who):
    task = town.trading.in_training(town.owners, rounds=1)
    for owner in town.owners[1:]:
        town.trading.update(owner, task)
    town.trading.wait(task.card.deadlines.round_s)
    left = town.trading.balance("fund")
    assert left == town.trading.participation(town.ann, task.id)["allocation"]["payment_micro"]
    text = client.get("/").text
    assert f"<b>{credits(left)} credits</b>" in text
    assert town.market.fund_pays_to in text
    enter(client, town, town.people[who])
    text = client.get("/ledger/fund").text
    assert "to the fund: pay that nobody earned" in text
    assert f"task {task.id}" in text
    assert "No command of the market takes money out of it" in text
    assert "Take money out" not in text


def test_what_an_open_task_reserves_is_listed(client, town):
    town.publish("reserved", reward=7.0)
    enter(client, town, town.buyer)
    assert re.search(r'reserved.*?<td class="num">7</td>', client.get("/ledger").text, re.DOTALL)


def test_a_buyer_sees_what_its_tasks_hold(client, town, whole):
    enter(client, town, town.buyer)
    text = client.get("/ledger").text
    assert "Held in escrow for your tasks" in text
    assert f'href="/tasks/{town.training.id}"' in text


def test_accounts_come_in_pages(client, town, whole, monkeypatch):
    monkeypatch.setattr(ledger_pages, "ROWS", 2)
    enter(client, town, town.people["auditor"])
    found, path = [], "/ledger"
    while path:
        text = client.get(path).text
        found += re.findall(r'<th scope="row"><a href="/ledger/([^"]*)">', text)
        more = re.search(r'rel="next" href="([^"]*)"', text)
        path = more[1] if more else None
    with town.store.read() as tx:
        assert found == [name for name, _ in tx.balances(limit=1000)]
    assert len(found) > 4


def test_a_statement_runs_backwards_to_the_first_transfer(client, town, whole, monkeypatch):
    enter(client, town, town.buyer)
    whole = client.get("/ledger/buyer:acme").text
    balances = ROW.findall(whole)
    assert balances[0] == credits(town.trading.balance("buyer:acme"))
    assert balances[-1] == "1,000"
    monkeypatch.setattr(ledger_pages, "ROWS", 3)
    paged, number = [], 1
    while rows := ROW.findall(client.get(f"/ledger/buyer:acme?page={number}").text):
        assert len(rows) <= 3
        paged += rows
        number += 1
    assert paged == balances
    assert f"There is no page {number}" in client.get(f"/ledger/buyer:acme?page={number}").text


def test_a_very_long_statement_is_not_counted_to_its_end(client, town, monkeypatch):
    monkeypatch.setattr(ledger_pages, "ROWS", 2)
    monkeypatch.setattr(ledger_pages, "_PAGES_LIGHT", 2)
    enter(client, town, town.buyer)
    for count in range(1, 7):  # there is a deposit already
        said = client.get("/ledger/buyer:acme").text
        some = "more than 4" if count > 4 else str(count)
        assert f"<dt>transfers</dt><dd><b>{some}</b>" in said
        pages = "more than 2" if count > 4 else str(-(-count // 2))
        assert (f"page 1 of {pages}<" in said) == (count > 2)
        assert ('rel="next"' in said) == (count > 2)
        town.trading.fund(1, reference=f"again {count}")
    old = client.get("/ledger/buyer:acme?page=3").text
    assert "<dt>transfers</dt><dd><b>7</b>" in old
    assert "page 3 of 4<" in old


def test_money_is_shown_again_before_it_leaves_and_leaves_once(client, town, whole):
    enter(client, town, town.owner)
    path, held = f"/ledger/{town.owner.party}", town.trading.balance(town.owner.party)
    asked = {"amount": "1.5", "destination": "IBAN <b>1</b>"}
    shown = town.post(client, "/ledger/withdraw", **fields_of(client, path), **asked)
    assert shown.status_code == 200
    assert "Take out 1.5 credits?" in shown.text
    assert credits(held - 1_500_000) in shown.text
    assert "<b>1</b>" not in shown.text
    assert town.trading.balance(town.owner.party) == held
    fields = {name: value_of(shown.text, name) for name in ("csrf", "key", "amount", "confirmed")}
    for _ in range(3):
        answer = town.post(client, "/ledger/withdraw", **fields, destination=asked["destination"])
        assert answer.headers["location"].startswith(f"{path}?done=")
        assert "has left your account" in client.get(answer.headers["location"]).text
    assert town.trading.balance(town.owner.party) == held - 1_500_000
    with town.store.read() as tx:
        (payout,) = tx.payouts(town.owner.party, limit=9)
    assert payout.destination == "IBAN <b>1</b>"
    for place in (path, "/own"):
        shown = client.get(place).text
        assert f"pay-out {payout.id}" in shown
        assert "requested<small>the market hands it over soon" in shown
        assert "<b>1</b>" not in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("amount", "sentence"),
    [
        ("", "This is needed."),
        ("0", "This must be above 0."),
        ("-1", "This must be above 0."),
        ("much", "This must be a whole or decimal number of credits"),
        ("1,5", "such as 1250.5 or 1,250.5; found 1,5."),
        ("1,0000", "This must be a whole or decimal number of credits"),
        ("1_0", "This must be a whole or decimal number of credits"),
        ("1e1", "This must be a whole or decimal number of credits"),
        ("\N{ARABIC-INDIC DIGIT ONE}", "This must be a whole or decimal number of credits"),
        ("1.0000001", "Credits have at most six decimals"),
        ("9" * 28, "This is more than the account holds."),
        ("99,999.5", "This is more than the account holds."),
        ("99999", "This is more than the account holds."),
    ],
)
def test_what_cannot_be_taken_out_is_said_at_the_field(client, town, whole, amount, sentence):
    enter(client, town, town.owner)
    held = town.trading.balance(town.owner.party)
    fields = fields_of(client, f"/ledger/{town.owner.party}")
    answer = town.post(
        client, "/ledger/withdraw", **fields, amount=amount, destination="here", confirmed="false"
    )
    assert answer.status_code == 422
    assert sentence in answer.text
    assert 'value="here"' in answer.text
    assert town.trading.balance(town.owner.party) == held


def test_a_confirmed_withdrawal_of_too_much_is_refused(client, town, whole):
    enter(client, town, town.owner)
    fields = fields_of(client, f"/ledger/{town.owner.party}")
    answer = town.post(
        client,
        "/ledger/withdraw",
        **fields,
        amount="99999",
        destination="here",
        confirmed="true",
    )
    assert answer.status_code == 422
    assert 'id="f-amount-error">This is more than the account holds.' in answer.text
    assert 'value="99999"' in answer.text
    assert 'value="here"' in answer.text
    assert town.trading.balance(town.owner.party) > 0


def test_one_credit_is_no_credits(client, town, whole):
    enter(client, town, town.owner)
    fields = fields_of(client, f"/ledger/{town.owner.party}")
    shown = town.post(client, "/ledger/withdraw", **fields, amount="1", destination="here")
    assert "Take out 1 credit?" in shown.text


@pytest.mark.parametrize("done", ["true", "1", "0" * 24])
def test_an_address_alone_claims_no_withdrawal(client, town, whole, done):
    enter(client, town, town.owner)
    answer = client.get(f"/ledger/{town.owner.party}?done={done}")
    assert answer.status_code == 200
    assert "has left your account" not in answer.text


def test_an_auditor_takes_nothing_out(client, town):
    enter(client, town, town.people["buyer who only reads"])
    text = client.get("/ledger/buyer:acme").text
    assert "Take money out" not in text
    fields = {"csrf": value_of(text, "csrf"), "key": "12345678"}
    answer = town.post(
        client, "/ledger/withdraw", **fields, amount="1", destination="x", confirmed="true"
    )
    assert answer.status_code == 403
    assert town.trading.balance("buyer:acme") == 1_000_000_000


def results(text):
    return re.findall(r'<td class="result (\w+)">', text)


def verify(client, town, path):
    return town.post(client, path, **fields_of(client, path))


@pytest.mark.parametrize(
    ("who", "right", "unseen"),
    [("auditor", 17, 0), ("operator", 17, 0), ("buyer", 5, 12), ("owner's token", 8, 12)],
)
def test_a_task_is_verified_as_far_as_one_may_see(client, town, who, right, unseen):
    path = f"/tasks/{town.completed.id}/verify"
    enter(client, town, town.people[who])
    found = results(verify(client, town, path).text)
    assert (found.count("right"), found.count("unseen")) == (right, unseen)
    assert "wrong" not in found


@pytest.mark.parametrize("state", ["open", "announced", "settled", "training"])
def test_a_task_is_verified_on_its_way(client, town, state):
    enter(client, town, town.people["auditor"])
    found = results(verify(client, town, f"/tasks/{getattr(town, state).id}/verify").text)
    assert found.count("right") >= 3
    assert "wrong" not in found


def test_strangers_cannot_make_the_market_compute(client, town):
    path = f"/tasks/{town.completed.id}/verify"
    assert client.get(path).status_code == 303
    assert town.post(client, path, key="12345678").status_code == 401
    enter(client, town, town.buyer)
    assert client.get("/ledger/verify").status_code == 403


def test_books_are_verified(client, town, whole):
    enter(client, town, town.people["operator"])
    before = client.get("/ledger/verify").text
    with town.store.read() as tx:
        count = len(tx.entries(limit=10_000))
    assert f"{count:,} records" in before
    assert results(verify(client, town, "/ledger/verify").text) == ["right"] * 3


def test_a_balance_that_was_changed_is_found(client, town, whole):
    enter(client, town, town.people["auditor"])
    with town.store._database.writer.begin() as connection:
        connection.execute(
            update(accounts).where(accounts.c.id == "owner:000000").values(balance=1)
        )
    text = verify(client, town, "/ledger/verify").text
    assert results(text) == ["right", "wrong", "wrong"]
    assert "2 checks differ." in text
    assert "owner:000000 holds 0.000001 credits, recomputed is" in text


def test_a_plan_that_was_changed_is_found(client, town):
    task = town.completed
    enter(client, town, town.people["auditor"])
    with town.store._database.writer.begin() as connection:
        connection.execute(
            update(replies)
            .where(replies.c.task == task.id, replies.c.owner == "owner:000001")
            .values(budget=2 * replies.c.budget)
        )
    text = verify(client, town, f"/tasks/{task.id}/verify").text
    assert "wrong" in results(text)
    assert re.search(r"<b>\d checks? differs?\.</b>", text)
    assert "Replies to ticks are what the log vouches for" in text


def test_too_much_for_a_page_is_said_before_and_refused(client, town, whole, monkeypatch):
    monkeypatch.setattr(verify_pages, "RECORDS_MAX", 3)
    enter(client, town, town.people["auditor"])
    for path in ("/ledger/verify", f"/tasks/{town.completed.id}/verify"):
        text = client.get(path).text
        assert "too much for a page" in text
        assert "Verify now" not in text
        fields = {"csrf": value_of(text, "csrf"), "key": "12345678"}
        assert town.post(client, path, **fields).status_code == 413


def test_the_ledger_is_readable_by_everybody(looked_at, town, whole):
    looked_at("/ledger", "ledger-owner", who=town.owner)
    looked_at("/ledger", "ledger-auditor", who=town.people["auditor"])


def test_a_statement_is_readable_by_everybody(looked_at, town, whole):
    looked_at(
        f"/ledger/{town.owner.party}",
        "statement",
        who=town.owner,
        ready=lambda page: page.get_by_text("Take money out").click(),
    )


def test_a_withdrawal_and_a_verification_are_readable_by_everybody(looked_at, town, whole):

    def confirm(page):
        page.get_by_text("Take money out").click()
        page.get_by_label("Amount").fill("0.5")
        page.get_by_label("Where it goes").fill("IBAN DE02 1203 0000 0000 2020 51")
        page.get_by_role("button", name="Go on").click()
        page.get_by_role("heading", name="Take out").wait_for()

    looked_at(f"/ledger/{town.owner.party}", "withdraw", who=town.owner, ready=confirm)

    def check(page):
        page.get_by_role("button", name="Verify now").click()
        page.get_by_role("status").get_by_text("checks are right").wait_for()

    path = f"/tasks/{town.completed.id}/verify"
    looked_at(path, "verified", who=town.people["auditor"], ready=check)
