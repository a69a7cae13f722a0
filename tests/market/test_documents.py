"""What each caller may see."""

import hashlib
import json

import pytest

from fedbourse.errors import Conflict, NotAllowed, NotFound
from fedbourse.market import buying, documents, merkle, selling
from fedbourse.market.task import State
from fedbourse.wire.canonical import digest
from fedbourse.wire.messages import query_message
from market.trading import AUDITOR, BUYER, OPERATOR, Trading, caller, card

R = 10_000_000


@pytest.fixture
def trading(store) -> Trading:
    made = Trading(store)
    made.fund(R)
    return made


def test_what_everybody_sees_holds_no_owners_value_plan_or_name(trading) -> None:
    owners = trading.owners(1.23456789, 1.3456789, 1.456789)
    task = trading.completed(owners, report=True)
    public = [
        documents.task_document(task),
        *map(documents.event_document, trading.events(task.id)),
    ]
    text = json.dumps(public)
    for owner in owners:
        mine = trading.mine(owner, task.id)
        assert owner.name not in text
        for secret in (
            owner.value,
            mine["plan"]["budget"],
            mine["plan"]["salt"],
            mine["line"]["salt"],
            mine["line"]["leaf"],
        ):
            assert str(secret) not in text


def test_the_buyers_report_holds_totals_only(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.settled(owners)
    trading.decide(owners[0], task.id, accept=False)
    for owner in owners[1:]:
        trading.decide(owner, task.id)
    trading.advance()
    assert trading.see(documents.report, BUYER, task.id)["participants"] == {
        "offered": 0,
        "signed": 0,
        "declined": 0,
    }
    task = trading.signed(owners, trading.play(owners[1:], trading.task(task.id)))
    trading.answer(owners[1], task)
    report = trading.see(documents.report, BUYER, task.id)
    pay = [line.payment for line in trading.lines(task.id)]
    assert report["participants"] == {"offered": 0, "signed": 2, "declined": 0}
    closed = {"held": R, "released": 0, "refunded": 0, "fund": 0, "earned": 0, "escrow": R}
    assert report["money_micro"] == closed
    audited = trading.see(documents.report, AUDITOR, task.id)
    of_the_open_round = {"earned": pay[0] // 4, "escrow": R - pay[0] // 4}
    assert audited["money_micro"] == closed | of_the_open_round
    assert not any(owner.name in json.dumps(report) for owner in owners)
    trading.wait(300)
    trading.do(buying.cancel, BUYER, task.id)
    money = trading.see(documents.report, AUDITOR, task.id)["money_micro"]
    assert money["held"] == money["refunded"] + money["fund"] + money["earned"] == R
    assert (money["earned"], money["fund"]) == (pay[0] // 4, pay[1] // 4)
    for who in (caller("buyer:other"), owners[0].caller):
        with pytest.raises(NotAllowed):
            trading.see(documents.report, who, task.id)


def test_an_owner_sees_its_own_line_and_its_proof(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2, 9.0)
    task = trading.settled(owners)
    settled = trading.events(task.id)[-1].body
    for owner in owners[:3]:
        mine = trading.mine(owner, task.id)
        assert {mine[part]["owner"] for part in ("interest", "plan", "line")} == {owner.name}
        found = trading.see(documents.proof, owner.caller, task.id)
        assert found["root"] == settled["lines_root"]
        assert merkle.proves(
            found["path"],
            leaf=mine["line"]["leaf"],
            position=found["position"],
            leaves=settled["lines"],
            root=settled["lines_root"],
        )
    assert trading.mine(owners[3], task.id)["line"] is None
    with pytest.raises(NotFound, match="has no line"):
        trading.see(documents.proof, owners[3].caller, task.id)


def test_auditors_and_operators_page_through_everybody(trading) -> None:
    owners = trading.owners(*[1.0 + i / 50 for i in range(7)])
    task = trading.settled(owners)
    whole = trading.see(documents.everybody, AUDITOR, task.id, after="", limit=100)
    assert whole["next"] is None
    found, after = [], ""
    while after is not None:
        page = trading.see(documents.everybody, OPERATOR, task.id, after=after, limit=3)
        found += page["owners"]
        after = page["next"]
    assert found == whole["owners"]
    assert [each["owner"] for each in found] == [owner.name for owner in owners]
    with pytest.raises(NotAllowed):
        trading.see(documents.everybody, BUYER, task.id, after="", limit=3)


def test_the_model_is_the_buyers_once_it_is_completed(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.in_training(owners, rounds=1)
    with pytest.raises(Conflict, match="needs a task that is completed"):
        trading.see(documents.model, BUYER, task.id)
    for owner in owners:
        trading.answer(owner, task)
    trading.advance()
    model = trading.see(documents.model, BUYER, task.id)
    assert len(model.model) == 8 * task.card.dimension
    assert trading.events(task.id)[-1].body["model_hash"] == model.model_hash
    for who in (caller("buyer:other"), AUDITOR, owners[0].caller):
        with pytest.raises(NotAllowed):
            trading.see(documents.model, who, task.id)


def test_the_open_round_is_for_those_who_signed(trading) -> None:
    owners = trading.owners(1.0, 1.1, 9.0)
    task = trading.in_training(owners)

    def query(owner, after=-1):
        return trading.see(documents.query, owner.caller, task.id, after=after)

    assert query(owners[0]).number == 0
    assert len(query(owners[0]).model) == 8 * task.card.dimension
    assert query(owners[0], after=0) is None
    with pytest.raises(NotFound, match="signed no terms"):
        query(owners[2])
    trading.do(buying.cancel, BUYER, task.id)
    with pytest.raises(Conflict, match="needs a task in training"):
        query(owners[0])


def test_a_query_follows_the_one_before_and_the_first_one_the_log(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.in_training(owners)
    began = next(event for event in trading.events(task.id) if event.kind == "training")
    previous = began.hash
    for number in range(task.card.rounds):
        found = trading.see(documents.query, owners[0].caller, task.id, after=number - 1)
        asked = query_message(
            task=task.id,
            card=task.card.digest,
            round=number,
            model_hash=hashlib.sha256(found.model).hexdigest(),
            deadline_ms=found.deadline_ms,
            previous=previous,
        )
        assert (found.previous, found.query) == (previous, digest(asked))
        previous = found.query
        for owner in owners:
            trading.answer(owner, trading.task(task.id))
        trading.advance()


def test_what_an_owner_has_earned_is_what_it_was_paid(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    trading.fund(R, reference="second")
    for vesting in ("by-round", "upfront"):
        before = [trading.balance(owner.name) for owner in owners]
        task = trading.settled(owners, vesting=vesting)
        for owner in owners:
            assert trading.mine(owner, task.id)["line"]["earned_micro"] == 0
            trading.decide(owner, task.id)
        trading.advance()
        task = trading.task(task.id)
        trading.answer(owners[0], task)
        for end in (False, True):
            if end:
                trading.do(buying.cancel, BUYER, task.id)
            for owner, held in zip(owners, before, strict=True):
                earned = trading.mine(owner, task.id)["line"]["earned_micro"]
                assert trading.balance(owner.name) - held == earned
        assert trading.task(task.id).state is State.CANCELLED
        trading.do(selling.erase, owners[0].caller, task.id)
        earned = trading.mine(owners[0], task.id)["line"]["earned_micro"]
        assert trading.balance(owners[0].name) - before[0] == earned


def test_a_draft_that_was_cancelled_stays_hidden_and_a_task_that_was_opened_does_not(
    trading,
) -> None:
    hidden = trading.do(buying.create, BUYER, card())
    trading.do(buying.cancel, BUYER, hidden.id)
    shown = trading.opened()
    trading.do(buying.cancel, BUYER, shown.id)

    def listed(who) -> set[str]:
        page = trading.see(documents.tasks, who, state=None, before=None, limit=100)
        return {document["task"] for document in page["tasks"]}

    assert listed(None) == listed(caller("buyer:bell")) == {shown.id}
    assert listed(BUYER) == listed(AUDITOR) == {shown.id, hidden.id}
    with pytest.raises(NotFound):
        trading.see(documents.one_task, None, hidden.id)


def test_while_a_task_is_open_everybody_sees_how_many_are_interested(trading) -> None:
    task = trading.opened()
    for owner in trading.owners(1.0, 1.1, 1.2):
        trading.do(
            selling.register_interest, owner.caller, task.id, value=None, previous=task.card.digest
        )
    assert trading.see(documents.one_task, None, task.id)["interested"] == 3
