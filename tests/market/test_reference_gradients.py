"""A buyer that keeps its records sends their gradients, is bound to them, and reveals them."""

import base64
import copy
import hashlib
from dataclasses import replace

import numpy as np
import pytest

from fedbourse.errors import Conflict, InvalidData, InvalidInput, NotAllowed, NotFound
from fedbourse.learning.reference_gradients import Reference
from fedbourse.market.audit import verify_task
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands.key_rotation import rotate_key
from fedbourse.market.commands.reference_gradients import put_reference_gradient
from fedbourse.market.records import State
from fedbourse.market.service import FUND, escrow
from fedbourse.market.views import View
from fedbourse.protocol.keys import SigningKey
from fedbourse.testing.trading import AUDITOR, BUYER, OPERATOR, Trading, caller, card
from market.evidence_trade import (
    REFERENCE,
    ROUNDS,
    VALUES,
    WRONG,
    changes,
    reference_gradient_of,
    send_gradient,
    trained,
)


@pytest.fixture
def trading(store) -> Trading:
    made = Trading(store)
    made.fund(20_000_000)
    return made


@pytest.fixture
def owners(trading):
    return trading.owners(0.2, *VALUES)


def begun(trading, owners, **evidence):
    return trading.in_training(owners, **changes(source="gradients", **evidence))


def reveal(trading, task, content: bytes = REFERENCE):
    return trading.do(buyer_commands.put_reference, BUYER, task.id, content=content)


def evidence_of(checks):
    return next(check for check in checks if check.name == "evidence")


def events(trading, task, kind: str) -> list[dict]:
    with trading.store.read() as tx:
        return [dict(e.body) for e in tx.events(task.id, limit=1000) if e.kind == kind]


@pytest.mark.parametrize(
    ("hold_rounds", "population"), [(None, "like-reference"), (3, "any-class-mixture")]
)
def test_gradients_decide_as_the_records_do(trading, owners, hold_rounds, population) -> None:
    task = begun(trading, owners, hold_rounds=hold_rounds, population=population)
    before = {each.owner: each.payment for each in trading.allocations(task.id)}
    task = trained(trading, task, owners, without_data=[0])
    assert task.state is State.COMPLETED
    states = {each.owner: each.state for each in trading.allocations(task.id)}
    assert states.pop(owners[0].name) == "dismissed"
    assert set(states.values()) == {"signed"}
    assert trading.balance(owners[0].name) == 0
    assert all(trading.balance(name) == before[name] for name in states)
    assert trading.balance(FUND) == before[owners[0].name]
    assert trading.balance(escrow(task.id)) == 0
    reveal(trading, task)
    checks = trading.verified(task.id)
    assert all(check.passed for check in checks), checks


def test_a_round_opens_only_when_its_gradient_is_committed_to(trading, owners) -> None:
    task = begun(trading, owners)
    assert (task.round, task.reference_ends_ms) == (0, task.deadline_ms)
    assert trading.see(View.round_request, owners[0].caller, task.id, after=-1) is None
    assert trading.see(View.newest_model, BUYER, task.id).number == 0
    assert trading.advance() == 0
    with pytest.raises(Conflict, match="not open yet"):
        trading.update(owners[0], task)
    content = reference_gradient_of(task, trading)
    trading.time_ms += 1000
    task = send_gradient(task, trading, content)
    assert task.reference_ends_ms is None
    assert task.deadline_ms == trading.time_ms + task.card.deadlines.round_s * 1000
    (opened,) = events(trading, task, "reference")
    assert opened["reference"] == hashlib.sha256(content).hexdigest()
    request = trading.see(View.round_request, owners[0].caller, task.id, after=-1)
    assert (request.previous, request.deadline_ms) == (task.last_hash, task.deadline_ms)
    trading.update(owners[0], task)


@pytest.mark.faults
def test_a_buyer_cannot_change_a_gradient_once_the_round_is_open(trading, owners) -> None:
    task = begun(trading, owners)
    content = reference_gradient_of(task, trading)
    task = send_gradient(task, trading, content)
    other = bytes(len(content))
    signed = {each.owner for each in trading.allocations(task.id)}
    for owner in (each for each in owners if each.name in signed):
        assert send_gradient(task, trading, content) == task  # once more has no effect
        with pytest.raises(Conflict, match="another one is refused"):
            send_gradient(task, trading, other)
        trading.update(owner, task)
    trading.advance()
    task = trading.task(task.id)
    assert task.round == 1
    with pytest.raises(Conflict, match="another one is refused"):
        send_gradient(task, trading, other, round=0)
    with pytest.raises(Conflict, match="still to come"):
        send_gradient(task, trading, content, round=2)
    with trading.store.begin() as tx, pytest.raises(Conflict, match="already"):
        tx.add_reference_gradient(task.id, 0, other)


@pytest.mark.parametrize("late", [{0}, {2}])
def test_a_buyer_that_is_late_voids_its_block_and_everybody_is_paid(trading, owners, late) -> None:
    task = begun(trading, owners, hold_rounds=4)
    task = trained(trading, task, owners, without_data=[0], late=late, until=max(late) + 1)
    # Also who was dismissed before.
    assert {each.state for each in trading.allocations(task.id)} == {"signed"}
    with pytest.raises(Conflict, match="came too late"):
        send_gradient(task, trading, round=max(late))
    task = trained(trading, task, owners, without_data=[0], late=late)
    null = [each["round"] for each in events(trading, task, "reference") if not each["reference"]]
    assert set(null) == late
    report = trading.see(View.evidence, BUYER, task.id)
    assert [each.stands for each in report.blocks] == [False, True]
    for each in trading.allocations(task.id):
        payment = each.payment
        if each.owner == owners[0].name:  # the first block, but for rounds it was not asked in
            assert each.state == "dismissed"
            payment = each.earned
            assert 0 < payment <= each.payment * 4 // ROUNDS
        assert trading.balance(each.owner) == payment
    reveal(trading, task)
    checks = trading.verified(task.id)
    assert all(check.passed for check in checks), checks


def test_a_buyer_that_sends_nothing_pays_everybody(trading, owners) -> None:
    task = begun(trading, owners)
    task = trained(trading, task, owners, without_data=[0], late=range(ROUNDS))
    assert task.state is State.COMPLETED
    for each in trading.allocations(task.id):
        assert trading.balance(each.owner) == each.payment
    checks = trading.verified(task.id)  # and there is nothing to reveal
    assert all(check.passed for check in checks), checks


@pytest.mark.parametrize("at", ["waiting", "open"])
def test_it_can_be_cancelled_and_the_market_get_another_key(trading, owners, at) -> None:
    task = begun(trading, owners, hold_rounds=4)
    task = trained(trading, task, owners, without_data=[0], until=5)
    earned = {each.owner: each.earned for each in trading.allocations(task.id)}
    if at == "open":
        task = send_gradient(task, trading)
    key = SigningKey.generate()
    with trading.store.begin() as tx:
        rotate_key(trading.market, tx, key)
        signed = tx.round(task.id, task.round).signature
    assert bool(signed) == (at == "open")
    task = trading.do(buyer_commands.cancel, BUYER, task.id)
    assert (task.state, task.reference_ends_ms) == (State.CANCELLED, None)
    for owner, due in earned.items():
        assert trading.balance(owner) == due
    assert trading.balance(escrow(task.id)) == 0
    reveal(trading, task)
    checks = trading.verified(task.id)
    assert not [check for check in checks if check.passed is False], checks


# Who may see and send what


def test_nobody_sees_scores_or_records_before_the_end(trading, owners) -> None:
    task = begun(trading, owners)
    for until in (1, 2):
        task = trained(trading, task, owners, without_data=[0], until=until)
        for who in (AUDITOR, BUYER, OPERATOR, owners[1].caller):
            for view in (View.evidence, View.reference):
                with pytest.raises(Conflict, match="has ended"):
                    trading.see(view, who, task.id)
        with pytest.raises(Conflict, match="has ended"):
            trading.see(View.kept_round, AUDITOR, task.id, 0)
    task = trained(trading, task, owners, without_data=[0])
    report = trading.see(View.evidence, BUYER, task.id)
    assert (report.revealed, report.findings) == (False, [])
    assert "has not revealed" in report.summary
    for who in (AUDITOR, BUYER):
        with pytest.raises(NotFound, match="has not revealed"):
            trading.see(View.reference, who, task.id)
    with pytest.raises(NotAllowed):
        trading.see(View.reference, owners[1].caller, task.id)
    reveal(trading, task)
    assert trading.see(View.reference, AUDITOR, task.id) == REFERENCE
    assert trading.see(View.evidence, BUYER, task.id).revealed


def test_only_the_buyer_sends_and_only_what_its_card_says(trading, owners) -> None:
    task = begun(trading, owners)
    for who in (AUDITOR, OPERATOR, owners[1].caller, caller("buyer:bell")):
        with pytest.raises(NotAllowed):
            trading.do(put_reference_gradient, who, task.id, round=0, content=b"")
        with pytest.raises(NotAllowed):
            trading.see(View.newest_model, who, task.id)
        with pytest.raises(NotAllowed):
            trading.do(buyer_commands.put_reference, who, task.id, content=REFERENCE)
    with pytest.raises(Conflict, match="until the task has ended"):
        reveal(trading, task)
    draft = trading.do(buyer_commands.create, BUYER, task.card)
    with pytest.raises(Conflict, match="until the task has ended"):
        reveal(trading, draft)
    assert "buyer keeps" in trading.see(View.evidence_outlook, BUYER, draft.id).summary
    plain = trading.in_training(owners, **changes())
    with pytest.raises(Conflict, match="does not let the buyer send"):
        send_gradient(plain, trading)
    task = trained(trading, task, owners)
    with pytest.raises(InvalidData, match="commits to"):
        reveal(trading, task, WRONG)
    assert reveal(trading, task) == reveal(trading, task)


# What a gradient may be

D = 3


def gradient(rows, shares=()) -> bytes:
    return np.array([*np.ravel(rows), *shares]).astype("<f8").tobytes()


@pytest.mark.parametrize(
    ("content", "classes", "sentence"),
    [
        (b"", None, "48 bytes; found 0"),
        (gradient([[0.0] * D]), None, "2 gradients"),
        (gradient([[0.0] * D] * 3), None, "found 72"),
        (gradient([[0.0] * D, [np.nan] * D]), None, "finite"),
        (gradient([[1.0] * D, [0.0] * D]), None, "at most 1; found 1.73205"),
        (gradient([[1e300] * D, [0.0] * D]), None, "at most 1; found inf"),
        (gradient([[0.0] * D] * 2), 2, "each class"),
        (gradient([[0.0] * D] * 5, shares=[0.2] * 3), 2, "2 at most"),
        (gradient([[0.0] * D] * 4, shares=[0.5, 0.6]), 2, "sum to 1"),
        (gradient([[0.0] * D] * 4, shares=[1.0, 0.0]), 2, "above 0"),
        (gradient([*[[0.0] * D] * 3, [1.0] * D], shares=[0.5, 0.5]), 2, "at most 1"),
    ],
)
def test_what_no_records_give_is_refused(content, classes, sentence) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        Reference.of(content, dimension=D, clip=1.0, classes=classes)


def test_the_classes_change_in_no_round(trading, owners) -> None:
    task = begun(trading, owners, population="any-class-mixture")
    task = trained(trading, task, owners, until=1)
    content = reference_gradient_of(task, trading)
    shares = np.array([0.5, 0.5]).astype("<f8").tobytes()
    with pytest.raises(InvalidInput, match="change in no round"):
        send_gradient(task, trading, content[:-16] + shares)
    assert send_gradient(task, trading, content).reference_ends_ms is None


def test_a_card_whose_gradients_are_too_large_is_refused() -> None:
    items = changes(source="gradients") | {"features": 600_000}
    del items["reference"]
    with pytest.raises(InvalidInput, match="9600032 bytes"):
        card(**items)
    with pytest.raises(InvalidInput, match="source"):
        replace(items["evidence"], source="home")


# What an auditor finds out


@pytest.fixture
def ended(trading, owners):
    task = begun(trading, owners)
    return trained(trading, task, owners, without_data=[0])


def test_records_that_are_never_revealed_make_verify_fail(trading, ended) -> None:
    check = evidence_of(trading.verified(ended.id))
    assert check.passed is False
    assert "has not revealed the reference records" in check.detail


@pytest.mark.faults
def test_gradients_of_other_records_make_verify_fail(trading, owners) -> None:
    """The buyer commits to one file, and sends the gradients of another."""
    task = begun(trading, owners)
    while task.state is State.TRAINING:
        if task.round == 1:
            send_gradient(task, trading, reference_gradient_of(task, trading, WRONG))
            task = trading.task(task.id)
        task = trained(trading, task, owners, until=task.round + 1)
    reveal(trading, task)
    check = evidence_of(trading.verified(task.id))
    assert check.passed is False
    assert "the buyer sent for round 1 lies" in check.detail


@pytest.mark.faults
def test_a_forged_reveal_or_commitment_is_caught(trading, ended) -> None:
    reveal(trading, ended)
    honest = trading.records(ended.id, viewer=AUDITOR)
    assert evidence_of(verify(honest)).passed
    for forge, sentence in FORGERIES.items():
        records = copy.deepcopy(honest)
        commitments = [each for each in records["events"] if each["kind"] == "reference"]
        forge(records, commitments[2], records["evidence"]["rounds"][2])
        check = evidence_of(verify(records))
        assert (check.passed, sentence in check.detail) == (False, True), (forge, check)


def another_reveal(records, event, kept):
    body = bytearray(REFERENCE)
    body[-1] ^= 1
    records["evidence"]["reference"] = bytes(body)


def another_gradient(records, event, kept):
    content = bytearray(base64.b64decode(kept["reference"]))
    content[0] ^= 1
    kept["reference"] = base64.b64encode(content).decode()


def another_hash(records, event, kept):
    event["body"]["reference"] = "0" * 64


def an_older_request(records, event, kept):
    event["hash"] = "0" * 64


def no_gradient(records, event, kept):
    kept["reference"] = None


def no_event(records, event, kept):
    records["events"].remove(event)


FORGERIES = {
    another_reveal: "the card commits to",
    another_gradient: "the hash of the reference gradient of round 2",
    another_hash: "the hash of the reference gradient of round 2",
    an_older_request: "the request of round 2",
    no_gradient: "the hash of the reference gradient of round 2",
    no_event: "does not say what opened round 2",
}


def verify(found):
    return verify_task(**found)
