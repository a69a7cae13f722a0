"""Rounds: answers that are checked, paid once, and confirmed by a signed receipt."""

import numpy as np
import pytest

from fedbourse.encoding.canonical import canonical, digest
from fedbourse.errors import Conflict, InvalidInput, NotAllowed
from fedbourse.market import updates
from fedbourse.market.commands import training as training_commands
from fedbourse.market.records import State
from fedbourse.market.service import FUND, escrow
from fedbourse.protocol.keys import verified
from fedbourse.protocol.messages import round_request_message, update_message
from fedbourse.testing.trading import BUYER, KEY, Trading, noise

R = 10_000_000


@pytest.fixture
def trading(store) -> Trading:
    made = Trading(store)
    made.fund(R)
    return made


def update(trading, owner, task, body, round=None):
    number = task.round if round is None else round
    return trading.do(updates.accept_update, owner.caller, task.id, round=number, body=body)


def body_of(trading, owner, task, seed="") -> bytes:
    return noise(
        task, trading.participation(owner, task.id)["allocation"]["budget"], f"{owner.name}{seed}"
    )


def test_a_receipt_is_signed_and_follows_the_answer(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.in_training(owners)
    body = body_of(trading, owners[0], task)
    signed = update(trading, owners[0], task, body)
    receipt = signed["receipt"]
    assert verified(KEY.public, canonical(receipt), signed["market_signature"])
    with trading.store.read() as tx:
        asked = tx.round(task.id, 0)
    import hashlib

    said = update_message(
        task=task.id,
        round=0,
        owner=owners[0].name,
        vector_hash=hashlib.sha256(body).hexdigest(),
        request=asked.request_hash,
    )
    assert receipt["previous"] == digest(said)
    began = next(e for e in trading.events(task.id) if e.kind == "training")
    query = round_request_message(
        task=task.id,
        card=task.card.digest,
        round=0,
        model_hash=asked.model_hash,
        deadline_ms=asked.deadline_ms,
        previous=began.hash,
    )
    assert asked.request_hash == digest(query)
    assert verified(KEY.public, canonical(query), asked.signature)
    assert receipt["earned_micro"] == trading.balance(owners[0].name)


def test_a_repeated_answer_gets_its_receipt_and_no_more_money(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.in_training(owners)
    body = body_of(trading, owners[0], task)
    first = update(trading, owners[0], task, body)
    paid = trading.balance(owners[0].name)
    assert update(trading, owners[0], task, body) == first
    with pytest.raises(Conflict, match="sent another update for round 0"):
        update(trading, owners[0], task, body_of(trading, owners[0], task, "other"))
    trading.wait(300)
    assert update(trading, owners[0], task, body, round=0) == first  # even after the round
    assert trading.balance(owners[0].name) == paid


@pytest.mark.parametrize("number", [-1, 1, 4, 1000])
def test_an_answer_to_another_round_earns_nothing(trading, number) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.in_training(owners)
    with pytest.raises(Conflict, match=r"round 0 is open|a round lies between 0 and"):
        update(trading, owners[0], task, body_of(trading, owners[0], task), round=number)
    assert trading.balance(owners[0].name) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda body: b"", "24 bytes"),
        (lambda body: body[:-1], "24 bytes"),
        (lambda body: body + bytes(8), "24 bytes"),
        (lambda body: bytes(24), "the norm of an update"),
        (lambda body: (np.frombuffer(body, "<f8") * 1e3 + 100).tobytes(), "the norm of an update"),
        (lambda body: body[:16] + np.float64("nan").tobytes(), "finite"),
        (lambda body: body[:16] + np.float64("inf").tobytes(), "finite"),
        (lambda body: body[:16] + np.float64(1e300).tobytes(), "the norm of an update"),
    ],
)
def test_an_answer_that_cannot_be_one_is_refused_and_costs_nothing(
    trading, spoil, sentence
) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.in_training(owners)
    good = body_of(trading, owners[0], task)
    with pytest.raises(InvalidInput, match=sentence):
        update(trading, owners[0], task, spoil(good))
    assert trading.balance(owners[0].name) == 0
    assert trading.allocations(task.id)[0].delivered == 0
    update(trading, owners[0], task, good)


def test_only_those_who_signed_answer(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2, 9.0)
    task = trading.settled(owners)
    trading.decide(owners[0], task.id, accept=False)
    for owner in owners[1:3]:
        trading.decide(owner, task.id)
    trading.advance()
    task = trading.signed(owners, trading.play(owners[1:], trading.task(task.id)))
    body = body_of(trading, owners[1], task)
    for owner in (owners[0], owners[3]):
        with pytest.raises(NotAllowed, match="signed no terms"):
            update(trading, owner, task, body)


def test_nobody_answers_after_the_deadline_even_if_the_clock_is_late(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.in_training(owners)
    trading.time_ms += 300_000
    with pytest.raises(Conflict, match="the deadline for update has passed"):
        trading.update(owners[0], task)
    assert trading.balance(owners[0].name) == 0


@pytest.mark.parametrize("rounds", [1, 3, 7])
def test_vested_pay_follows_answered_rounds_to_the_last_micro_credit(trading, rounds) -> None:
    owners = trading.owners(1.0, 1.13)
    task = trading.in_training(owners, rounds=rounds)
    pay = {allocation.owner: allocation.payment for allocation in trading.allocations(task.id)}
    for k in range(1, rounds + 1):
        trading.update(owners[0], task)
        assert trading.balance(owners[0].name) == pay[owners[0].name] * k // rounds
        trading.wait(300)
        task = trading.task(task.id)
    assert task.state is State.COMPLETED
    assert trading.balance(owners[0].name) == pay[owners[0].name]
    assert trading.balance(owners[1].name) == 0
    assert trading.balance(FUND) == pay[owners[1].name]
    assert trading.balance(BUYER.party) == 0
    assert trading.balance(escrow(task.id)) == 0


def test_upfront_pay_is_whole_before_round_0_and_never_more(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.in_training(owners, vesting="upfront", rounds=2)
    pay = {allocation.owner: allocation.payment for allocation in trading.allocations(task.id)}
    for _ in range(2):
        for owner in owners:
            assert trading.balance(owner.name) == pay[owner.name]
            receipt = trading.update(owner, task)["receipt"]
            assert receipt["earned_micro"] == pay[owner.name]
        trading.advance()
        task = trading.task(task.id)
    assert [trading.balance(owner.name) for owner in owners] == list(pay.values())
    assert trading.balance(BUYER.party) == 0


def test_training_waits_for_those_who_may_still_sign(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.settled(owners)
    for owner in owners[:2]:
        trading.decide(owner, task.id)
    with pytest.raises(Conflict, match="1 owners have neither signed nor declined"):
        trading.do(training_commands.start, BUYER, task.id)
    trading.decide(owners[2], task.id, accept=False)
    with pytest.raises(Conflict, match="an owner has declined; the price is discovered again"):
        trading.do(training_commands.start, BUYER, task.id)
    assert trading.task(task.id).state is State.SETTLED


def test_the_model_steps_against_the_weighted_mean_of_the_answers(trading) -> None:
    owners = trading.owners(1.0, 1.0)
    task = trading.in_training(owners, rounds=1, step_size=0.5)
    vectors = []
    for owner in owners:
        body = body_of(trading, owner, task)
        update(trading, owner, task, body)
        vectors.append(np.frombuffer(body, "<f8"))
    with trading.store.read() as tx:
        first = np.frombuffer(tx.round(task.id, 0).model, "<f8")
    trading.advance()
    with trading.store.read() as tx:
        last = tx.round(task.id, 1)
        assert tx.round(task.id, 0).model == b""
        assert all(each.vector is None for each in tx.updates(task.id, 0))
    step = first - 0.5 * np.mean(vectors, axis=0)  # equal budgets, equal weights
    assert np.frombuffer(last.model, "<f8") == pytest.approx(step, rel=1e-9)


def test_training_that_diverges_is_cancelled_and_the_rest_refunded(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.in_training(owners, rounds=3, step_size=1e308, clip=1e3)
    pay = {allocation.owner: allocation.payment for allocation in trading.allocations(task.id)}
    for _ in range(3):
        for owner in owners:
            trading.update(owner, task)
        trading.advance()
        task = trading.task(task.id)
        if task.state is State.CANCELLED:
            break
    assert "diverged" in trading.events(task.id)[-1].body["reason"]
    delivered = task.round + 1
    for owner in owners:
        assert trading.balance(owner.name) == pay[owner.name] * delivered // 3
    assert trading.balance(escrow(task.id)) == 0
    assert [check for check in trading.verified(task.id) if check.passed is False] == []
