"""Heads of logs: openings form one chain, and a log that does not extend a head is found out."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import pytest
from sqlalchemy import text

from fedbourse.encoding.canonical import canonical
from fedbourse.errors import InvalidInput, NotFound
from fedbourse.market.audit import SeenHead, verify_head
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.heads import Head, head_of_market, head_of_task
from fedbourse.market.log import next_event
from fedbourse.protocol.keys import SigningKey
from fedbourse.protocol.messages import log_head_message
from fedbourse.testing.trading import BUYER, Trading, caller, card

KEY = SigningKey.generate()
TASK, OTHER = "0" * 24, "1" * 24


def test_the_market_s_log_is_a_chain_of_the_events_that_opened_tasks(store) -> None:
    trading = Trading(store)
    trading.fund(10**9)
    assert trading.see(head_of_market) == Head("market", 0, "")
    drafts = [trading.do(buyer_commands.create, BUYER, card()).id for _ in range(9)]
    never_opened = drafts.pop()
    opened = [trading.do(buyer_commands.open_task, BUYER, draft) for draft in drafts]
    with store.read() as tx:
        chain = tx.openings(limit=100)
        assert tx.openings(after=3, limit=2) == chain[4:6]
        assert tx.last_opening() == chain[-1]
    assert {event.task for event in chain} == {task.id for task in opened}
    assert [event.body["opening"] for event in chain] == list(range(8))
    before = ["", *(event.hash for event in chain)]
    assert [event.body["previous_opening"] for event in chain] == before[:-1]
    assert trading.see(head_of_market) == Head("market", 8, chain[-1].hash)
    assert trading.see(head_of_task, None, opened[0].id) == Head(
        opened[0].id, 2, opened[0].last_hash
    )
    with pytest.raises(NotFound):
        trading.see(head_of_task, None, never_opened)


def test_two_who_open_tasks_at_once_do_not_take_the_same_place(store, kind) -> None:
    trading, bell = Trading(store), caller("buyer:bell")
    for who in (BUYER, bell):
        trading.fund(10**9, party=who.party, reference=who.party)
    first, second = (trading.do(buyer_commands.create, who, card()).id for who in (BUYER, bell))
    with ThreadPoolExecutor(1) as pool:
        with store.begin() as tx:
            buyer_commands.open_task(trading.market, tx, BUYER, first)
            other = pool.submit(trading.do, buyer_commands.open_task, bell, second)
            until = time.monotonic() + 60
            while kind == "postgresql" and not waits(store):
                assert time.monotonic() < until
        other.result()
    with store.read() as tx:
        assert [event.task for event in tx.openings(limit=9)] == [first, second]


def waits(store) -> bool:
    """Say whether a transaction waits for another one."""
    with store.read() as tx:
        query = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return tx._connection.scalar(query) > 0


def signed(of, length, hash, key=KEY):
    message = log_head_message(of=of, length=length, hash=hash, at_ms=5)
    document = {
        "head": message,
        "public_key": key.public,
        "signature": key.sign(canonical(message)),
    }
    return SeenHead.of(document)


def chain(count, *, of=TASK, changed=None):
    """A log of so many events; one of them may say something else, and all after it follow."""
    events, after = [], (-1, "a card")
    for number in range(count):
        body = {"said": "something else" if number == changed else number}
        events.append(next_event(of, "said", body, at_ms=number, after=after))
        after = number, events[-1].hash
    return events


def compared(events, *, seen=(3,), claimed=None, shown=None, keys=(KEY.public,), of=TASK):
    """Compare a log with heads that were seen of ``chain(6)``."""
    heads = [Head(TASK, length, chain(6)[length - 1].hash) for length in seen]
    shown = events[min(seen, default=0) :] if shown is None else shown
    present = claimed or signed(of, len(events), events[-1].hash)
    links = [asdict(event) for event in shown]
    return verify_head(TASK, seen=heads, keys=keys, present=present, links=links)


@pytest.mark.parametrize("seen", [(1,), (3,), (6,), (2, 4, 6), (3, 3), ()])
def test_a_log_that_goes_on_from_every_head_extends_them(seen) -> None:
    for events in (chain(6), chain(9)):
        found = compared(events, seen=seen)
        assert found.passed, found.detail
        assert found.detail.startswith("extends what was seen" if seen else f"{len(events)} links")


def test_more_links_than_the_head_claims_are_left_aside() -> None:
    assert compared(chain(6), shown=chain(9)[3:]).passed


OTHERS = SigningKey.generate()
CHEATS = {
    "an event before the head": ("rewritten", lambda: compared(chain(9, changed=1))),
    "the last event seen": ("rewritten", lambda: compared(chain(9, changed=2))),
    "the end, nothing after it": ("rewritten", lambda: compared(chain(3, changed=1))),
    "an event between two heads": ("rewritten", lambda: compared(chain(9, changed=4), seen=(3, 6))),
    "shorter than the head": ("shortened", lambda: compared(chain(2))),
    "shorter than one of the heads": ("shortened", lambda: compared(chain(5), seen=(3, 6))),
    "an event left out": ("shortened", lambda: compared(chain(9), shown=chain(9)[4:])),
    "the last left out": ("shortened", lambda: compared(chain(9), shown=chain(9)[3:8])),
    "an event that is not what its hash says": (
        "rewritten",
        lambda: compared(chain(9), shown=[replace(e, kind="other") for e in chain(9)[3:]]),
    ),
    "an end that the links do not lead to": (
        "rewritten",
        lambda: compared(chain(9), claimed=signed(TASK, 9, "0" * 64)),
    ),
    "another key": (
        "signed by another key",
        lambda: compared(chain(9), claimed=signed(TASK, 9, chain(9)[-1].hash, OTHERS)),
    ),
    "a key of its own for one of two": (
        "signed by another key",
        lambda: compared(chain(9), keys=(KEY.public, OTHERS.public)),
    ),
    "a first head whose signature is none": (
        "signed by another key",
        lambda: compared(
            chain(3), seen=(), keys=(), claimed=replace(signed(TASK, 3, "h"), signature="x" * 86)
        ),
    ),
    "the head of another log": ("shows a head of", lambda: compared(chain(9), of=OTHER)),
    "an event of another task": (
        "is an event of task",
        lambda: compared(chain(3), claimed=signed(TASK, 4, followed().hash), shown=[followed()]),
    ),
    "no head": (
        "vanished",
        lambda: verify_head(TASK, seen=[Head(TASK, 3, "h")], keys=(), present=None, links=[]),
    ),
    "rubbish": (
        "cannot be read",
        lambda: verify_head(
            TASK,
            seen=[Head(TASK, 0, "h")],
            keys=(),
            present=signed(TASK, 1, "h"),
            links=[{"kind": "no event"}],
        ),
    ),
}


def followed():
    last = chain(3)[-1]
    return next_event(OTHER, "said", {}, at_ms=4, after=(last.sequence, last.hash))


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_log_that_does_not_extend_a_head_differs_in_one_word(cheat) -> None:
    word, compare = CHEATS[cheat]
    found = compare()
    assert found.passed is False
    assert word in found.detail


def test_two_heads_of_one_length_with_different_hashes_are_a_fork() -> None:
    here, there = (Head(TASK, 3, each[-1].hash) for each in (chain(3), chain(3, changed=1)))
    for order in ([here, there], [there, here]):
        present = signed(TASK, 3, here.hash)
        found = verify_head(TASK, seen=order, keys=[KEY.public], present=present, links=[])
        assert found.passed is False
        assert found.detail.startswith("forked")


@pytest.mark.parametrize(
    "change",
    [
        {"of": "../accounts"},
        {"of": 5},
        {"length": -1},
        {"length": True},
        {"length": 1.5},
        {"at_ms": "5"},
        {"hash": None},
    ],
)
def test_a_head_that_is_none_is_refused(change) -> None:
    document = signed(TASK, 3, "h").document
    with pytest.raises(InvalidInput):
        SeenHead.of(document | {"head": document["head"] | change})
    for wrong in (None, [], {}, {"head": {}}, {"head": document["head"]}):
        with pytest.raises(InvalidInput):
            SeenHead.of(wrong)
