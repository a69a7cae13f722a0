"""What the market signs for everybody: each round and each event once, however many devices ask."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from fedbourse.encoding.canonical import canonical
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.records import State
from fedbourse.market.service import state_message
from fedbourse.market.views import View
from fedbourse.protocol.keys import SigningKey, verified
from fedbourse.protocol.messages import participation_message, round_request_message
from fedbourse.testing.trading import BUYER, KEY, Trading

R = 10_000_000


@pytest.fixture
def trading(store) -> Trading:
    made = Trading(store)
    made.fund(R)
    return made


@pytest.fixture
def signed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what the market signs, by kind."""
    made: Counter[str] = Counter()
    sign = SigningKey.sign

    def counted(key: SigningKey, message: bytes) -> str:
        if key is KEY:
            made[json.loads(message)["kind"]] += 1
        return sign(key, message)

    monkeypatch.setattr(SigningKey, "sign", counted)
    return made


@pytest.mark.parametrize("many", [2, 7])
def test_rounds_and_states_cost_a_signature_each_however_many_devices_ask(
    trading, signed, many
) -> None:
    owners = trading.owners(*[1.0] * many)
    task = trading.in_training(owners)
    while task.state is State.TRAINING:
        for owner in owners:
            asked = trading.see(View.round_request, owner.caller, task.id, after=-1)
            shown = trading.shown(View.task_document, None, task.id)
            assert (asked.number, shown["state"]) == (task.round, "training")
            trading.update(owner, task)
        trading.advance()
        task = trading.task(task.id)
    assert task.state is State.COMPLETED
    assert signed["round-request"] == task.card.rounds
    assert signed["task-state"] == len(trading.events(task.id))


def test_every_state_is_signed_as_it_is_shown(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    seen = []

    def check(task) -> None:
        task = trading.task(task.id)
        seen.append(task.state.value)
        message = state_message(task)
        shown = trading.shown(View.task_document, None, task.id)
        assert verified(KEY.public, canonical(message), shown["state_signature"])
        assert message["sequence"] == shown["events"] - 1
        for name in set(message) - {"kind", "sequence"}:
            assert message[name] == shown[name]
        last = trading.events(task.id)[-1]
        assert (message["sequence"], message["last_hash"]) == (last.sequence, last.hash)

    task = trading.announced(owners)
    check(task)
    task = trading.play(owners, task)
    check(task)
    task = trading.signed(owners, task)
    check(task)
    trading.do(buyer_commands.cancel, BUYER, task.id)
    check(task)
    assert seen == ["announced", "settled", "training", "cancelled"]


def test_the_last_model_is_asked_about_by_nobody(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.completed(owners)
    with trading.store.read() as tx:
        asked, last = tx.round(task.id, 0), tx.round(task.id, task.card.rounds)
    message = round_request_message(
        task=task.id,
        card=task.card.digest,
        round=0,
        model_hash=asked.model_hash,
        deadline_ms=asked.deadline_ms,
        previous=asked.previous,
    )
    assert verified(KEY.public, canonical(message), asked.signature)
    assert not last.signature


def test_an_owners_record_is_signed_for_it_alone(trading) -> None:
    owners = trading.owners(1.0, 1.1, 90.0)
    task = trading.settled(owners)
    for owner, allocation in zip(owners, ("offered", "offered", None), strict=True):
        participation = trading.participation(owner, task.id)
        message = participation_message(
            task=task.id,
            owner=owner.name,
            sequence=task.last_sequence,
            allocation=allocation,
            terms=participation["terms"] and participation["terms"]["digest"],
            exit=None,
            earned_micro=0,
            held_micro=0,
        )
        assert verified(KEY.public, canonical(message), participation["signature"])
        assert participation["sequence"] == task.last_sequence
