"""Another key for the market: nothing that a device acts on is left under the old one."""

from __future__ import annotations

import pytest

from fedbourse.encoding.canonical import canonical
from fedbourse.errors import Conflict, NotFound, Unauthenticated
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands.key_rotation import current_key, rotate_key
from fedbourse.market.service import Market, state_message
from fedbourse.protocol.keys import SigningKey, verified
from fedbourse.protocol.messages import round_request_message
from fedbourse.protocol.rotation import keys_since
from fedbourse.testing.trading import BUYER, KEY, Trading, card

R = 10_000_000


@pytest.fixture
def trading(store) -> Trading:
    made = Trading(store)
    made.fund(2 * R)
    return made


def rotated(trading: Trading) -> SigningKey:
    """Give the market another key."""
    new = SigningKey.generate()
    with trading.store.begin() as tx:
        rotate_key(trading.market, tx, new)
    trading.market = Market(new, now_ms=lambda: trading.time_ms)
    return new


def test_every_task_and_open_round_is_signed_anew(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    training = trading.in_training(owners)
    ended = trading.opened()
    trading.do(buyer_commands.cancel, BUYER, ended.id)
    draft = trading.do(buyer_commands.create, BUYER, card())
    new = rotated(trading)
    for id in (training.id, ended.id, draft.id):
        task = trading.task(id)
        message = canonical(state_message(task))
        assert verified(new.public, message, task.state_signature)
        assert not verified(KEY.public, message, task.state_signature)
    with trading.store.read() as tx:
        asked = tx.round(training.id, 0)
    message = round_request_message(
        task=training.id,
        card=training.card.digest,
        round=0,
        model_hash=asked.model_hash,
        deadline_ms=asked.deadline_ms,
        previous=asked.previous,
    )
    assert verified(new.public, canonical(message), asked.signature)


def test_a_trade_goes_on_and_its_log_still_verifies(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.in_training(owners)
    before = trading.update(owners[0], task)
    new = rotated(trading)
    assert trading.update(owners[0], task) == before  # the receipt stays as it was signed
    after = trading.update(owners[1], task)
    for signed, key in ((before, KEY), (after, new)):
        assert verified(key.public, canonical(signed["receipt"]), signed["market_signature"])
    trading.advance()
    assert trading.task(task.id).round == 1
    assert not [check for check in trading.verified(task.id) if check.passed is False]


def test_keys_lead_from_any_earlier_one_to_the_last(trading) -> None:
    keys = [KEY.public]
    with trading.store.read() as tx:
        assert current_key(tx.rotations()) is None
    for _ in range(3):
        trading.time_ms += 1
        keys.append(rotated(trading).public)
    with trading.store.read() as tx:
        made = tx.rotations()
    documents = [vars(each) for each in made]
    assert current_key(made) == keys[-1]
    assert [each.old for each in made] == keys[:-1]
    for number, key in enumerate(keys):
        assert keys_since(key, documents) == tuple(keys[number + 1 :])
    assert keys_since(SigningKey.generate().public, documents) == ()
    with pytest.raises(Unauthenticated, match="is not signed with"):
        keys_since(keys[0], [documents[0], documents[1] | {"new": keys[3]}, documents[2]])


def test_a_key_has_one_successor(trading) -> None:
    first = trading.market
    rotated(trading)
    with pytest.raises(Conflict, match="has a successor already"), trading.store.begin() as tx:
        rotate_key(first, tx, SigningKey.generate())
    with pytest.raises(NotFound), trading.store.begin() as tx:
        tx.sign_round("none", 0, "signature")
