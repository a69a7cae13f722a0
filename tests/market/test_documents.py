"""What each caller may see."""

import hashlib
import json

import pytest

from fedbourse.encoding.canonical import canonical, digest
from fedbourse.errors import Conflict, NotAllowed, NotFound
from fedbourse.market import documents, merkle, views
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.log_summary import summary_of
from fedbourse.market.records import State
from fedbourse.market.views import View
from fedbourse.protocol.messages import round_request_message
from fedbourse.testing.trading import AUDITOR, BUYER, OPERATOR, Trading, caller, card

R = 10_000_000


@pytest.fixture
def trading(store) -> Trading:
    made = Trading(store)
    made.fund(2 * R)
    return made


def test_what_everybody_sees_holds_no_owners_value_plan_or_name(trading) -> None:
    owners = trading.owners(1.23456789, 1.3456789, 1.456789)
    task = trading.completed(owners, report=True)
    public = [
        documents.task_document(task),
        *trading.events(task.id),
    ]
    text = canonical(public).decode()
    for owner in owners:
        participation = trading.participation(owner, task.id)
        assert owner.name not in text
        for secret in (
            owner.value,
            participation["plan"]["budget"],
            participation["plan"]["salt"],
            participation["allocation"]["salt"],
            participation["allocation"]["leaf"],
        ):
            assert str(secret) not in text


def test_the_buyers_report_holds_totals_only(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.settled(owners)
    trading.decide(owners[0], task.id, accept=False)
    for owner in owners[1:]:
        trading.decide(owner, task.id)
    trading.advance()
    assert trading.shown(View.report, BUYER, task.id)["participants"] == {
        "offered": 0,
        "signed": 0,
        "declined": 0,
        "dismissed": 0,
    }
    task = trading.signed(owners, trading.play(owners[1:], trading.task(task.id)))
    trading.update(owners[1], task)
    report = trading.shown(View.report, BUYER, task.id)
    pay = [allocation.payment for allocation in trading.allocations(task.id)]
    assert report["participants"] == {"offered": 0, "signed": 2, "declined": 0, "dismissed": 0}
    closed = {"held": R, "released": 0, "refunded": 0, "fund": 0, "earned": 0, "escrow": R}
    assert report["money_micro"] == closed
    audited = trading.shown(View.report, AUDITOR, task.id)
    of_the_open_round = {"earned": pay[0] // 4, "escrow": R - pay[0] // 4}
    assert audited["money_micro"] == closed | of_the_open_round
    assert not any(owner.name in json.dumps(report) for owner in owners)
    trading.wait(300)
    trading.do(buyer_commands.cancel, BUYER, task.id)
    money = trading.shown(View.report, AUDITOR, task.id)["money_micro"]
    assert money["held"] == money["refunded"] + money["fund"] + money["earned"] == R
    assert (money["earned"], money["fund"]) == (pay[0] // 4, pay[1] // 4)
    for who in (caller("buyer:other"), owners[0].caller):
        with pytest.raises(NotAllowed):
            trading.shown(View.report, who, task.id)


def test_an_owner_sees_its_own_line_and_its_proof(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2, 9.0)
    task = trading.settled(owners)
    settled = trading.events(task.id)[-1].body
    for owner in owners[:3]:
        participation = trading.participation(owner, task.id)
        assert {participation[part]["owner"] for part in ("interest", "plan", "allocation")} == {
            owner.name
        }
        found = trading.shown(View.proof, owner.caller, task.id)
        assert found["root"] == settled["allocations_root"]
        assert merkle.proves(
            found["path"],
            leaf=participation["allocation"]["leaf"],
            position=found["position"],
            leaves=settled["allocations"],
            root=settled["allocations_root"],
        )
    assert trading.participation(owners[3], task.id)["allocation"] is None
    with pytest.raises(NotFound, match="has no allocation"):
        trading.shown(View.proof, owners[3].caller, task.id)


def test_auditors_and_operators_page_through_everybody(trading) -> None:
    owners = trading.owners(*[1.0 + i / 50 for i in range(7)])
    task = trading.settled(owners)
    whole = trading.shown(View.everybody, AUDITOR, task.id, after="", limit=100)
    assert whole["next"] is None
    found, after = [], ""
    while after is not None:
        page = trading.shown(View.everybody, OPERATOR, task.id, after=after, limit=3)
        found += page["owners"]
        after = page["next"]
    assert found == whole["owners"]
    assert [each["owner"] for each in found] == [owner.name for owner in owners]
    with pytest.raises(NotAllowed):
        trading.shown(View.everybody, BUYER, task.id, after="", limit=3)


def test_a_page_holds_fewer_owners_where_each_has_replied_often(trading, monkeypatch) -> None:
    owners = trading.owners(1.0, 1.1, 1.2, 1.3, 1.35)
    task = trading.settled(owners)
    assert len(task.totals) > 2
    with trading.store.read() as tx:
        seen = View(trading.market, tx, AUDITOR)
        whole = seen.owners(task.id, after="", limit=100)
        assert (len(whole.owners), whole.next) == (5, None)
        for replies, size in ((2 * len(task.totals) + 1, 2), (1, 1)):
            monkeypatch.setattr(views, "_REPLIES_A_PAGE", replies)
            found, after = [], ""
            while after is not None:
                page = seen.owners(task.id, after=after, limit=100)
                assert len(page.owners) <= size
                found += page.owners
                after = page.next
            assert found == whole.owners


def test_a_view_reads_a_log_once_and_counts_who_trains_by_it(trading, monkeypatch) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.in_training(owners)
    read = []
    monkeypatch.setattr(views, "summary_of", lambda *of: read.append(of) or summary_of(*of))
    with trading.store.read() as tx:
        seen = View(trading.market, tx, OPERATOR)
        assert seen.log(task.id) == seen.log(task.id)
        assert seen.counts(task.id) == (3, 3)
        assert len(read) == 1
    opened = trading.opened()
    with trading.store.read() as tx:
        assert View(trading.market, tx, OPERATOR).counts(opened.id) == (0, 0)


def test_the_model_is_the_buyers_once_it_is_completed(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.in_training(owners, rounds=1)
    with pytest.raises(Conflict, match="needs a task that is completed"):
        trading.see(View.model, BUYER, task.id)
    for owner in owners:
        trading.update(owner, task)
    trading.advance()
    model = trading.see(View.model, BUYER, task.id)
    assert len(model.model) == 8 * task.card.dimension
    assert trading.events(task.id)[-1].body["model_hash"] == model.model_hash
    for who in (caller("buyer:other"), AUDITOR, owners[0].caller):
        with pytest.raises(NotAllowed):
            trading.see(View.model, who, task.id)


def test_the_open_round_is_for_those_who_signed(trading) -> None:
    owners = trading.owners(1.0, 1.1, 9.0)
    task = trading.in_training(owners)

    def round_request(owner, after=-1):
        return trading.see(View.round_request, owner.caller, task.id, after=after)

    assert round_request(owners[0]).number == 0
    assert len(round_request(owners[0]).model) == 8 * task.card.dimension
    assert round_request(owners[0], after=0) is None
    with pytest.raises(NotFound, match="signed no terms"):
        round_request(owners[2])
    trading.do(buyer_commands.cancel, BUYER, task.id)
    with pytest.raises(Conflict, match="needs a task in training"):
        round_request(owners[0])


def test_a_query_follows_the_one_before_and_the_first_one_the_log(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.in_training(owners)
    began = next(event for event in trading.events(task.id) if event.kind == "training")
    previous = began.hash
    for number in range(task.card.rounds):
        found = trading.see(View.round_request, owners[0].caller, task.id, after=number - 1)
        asked = round_request_message(
            task=task.id,
            card=task.card.digest,
            round=number,
            model_hash=hashlib.sha256(found.model).hexdigest(),
            deadline_ms=found.deadline_ms,
            previous=previous,
        )
        assert (found.previous, found.request_hash) == (previous, digest(asked))
        previous = found.request_hash
        for owner in owners:
            trading.update(owner, trading.task(task.id))
        trading.advance()


def test_what_an_owner_has_earned_is_what_it_was_paid(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    trading.fund(R, reference="second")
    for vesting in ("by-round", "upfront"):
        before = [trading.balance(owner.name) for owner in owners]
        task = trading.settled(owners, vesting=vesting)
        for owner in owners:
            assert trading.participation(owner, task.id)["allocation"]["earned_micro"] == 0
            trading.decide(owner, task.id)
        trading.advance()
        task = trading.task(task.id)
        trading.update(owners[0], task)
        for end in (False, True):
            if end:
                trading.do(buyer_commands.cancel, BUYER, task.id)
            for owner, held in zip(owners, before, strict=True):
                earned = trading.participation(owner, task.id)["allocation"]["earned_micro"]
                assert trading.balance(owner.name) - held == earned
        assert trading.task(task.id).state is State.CANCELLED
        trading.do(owner_commands.erase, owners[0].caller, task.id)
        earned = trading.participation(owners[0], task.id)["allocation"]["earned_micro"]
        assert trading.balance(owners[0].name) - before[0] == earned


def test_a_draft_that_was_cancelled_stays_hidden_and_a_task_that_was_opened_does_not(
    trading,
) -> None:
    hidden = trading.do(buyer_commands.create, BUYER, card())
    trading.do(buyer_commands.cancel, BUYER, hidden.id)
    shown = trading.opened()
    trading.do(buyer_commands.cancel, BUYER, shown.id)

    def listed(who) -> set[str]:
        page = trading.shown(View.tasks, who, state=None, before=None, limit=100)
        return {document["task"] for document in page["tasks"]}

    assert listed(None) == listed(caller("buyer:bell")) == {shown.id}
    assert listed(BUYER) == listed(AUDITOR) == {shown.id, hidden.id}
    with pytest.raises(NotFound):
        trading.shown(View.task_document, None, hidden.id)


def test_while_a_task_is_open_everybody_sees_how_many_are_interested(trading) -> None:
    task = trading.opened()
    for owner in trading.owners(1.0, 1.1, 1.2):
        trading.do(
            owner_commands.register_interest,
            owner.caller,
            task.id,
            value=None,
            previous=task.card.digest,
        )
    assert trading.shown(View.task_document, None, task.id)["interested"] == 3
