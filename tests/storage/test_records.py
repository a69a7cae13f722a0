"""What is stored comes back as it was, over both databases."""

import dataclasses
import random
import struct
from contextlib import suppress

import pytest
from sqlalchemy import text

from fedbourse.errors import (
    CannotWrite,
    Conflict,
    FedbourseError,
    InvalidInput,
    InvalidNumber,
    NotFound,
)
from fedbourse.market.parties import EnrolledDevice, Enrolment, Token
from fedbourse.market.ports import Store, Transaction
from fedbourse.market.records import (
    DeviceStatistics,
    Exit,
    Interest,
    RefusedUpdate,
    Response,
    Round,
    State,
    TaskVersion,
    Update,
)
from fedbourse.storage import SqlStore
from storage.records import (
    ACME,
    ANN,
    BOB,
    CARD,
    TASK,
    a_line,
    a_reply,
    a_task,
    an_exit,
    an_interest,
    repliers,
    some_events,
    with_task,
)

LARGEST = 2**63 - 1
CAT = "owner:cat"


def test_a_store_is_what_the_market_asks_for(store: SqlStore) -> None:
    as_store: Store = store
    with as_store.begin() as tx:
        as_unit: Transaction = tx
    for protocol in Transaction.__mro__[:-2]:
        for name in vars(protocol):
            assert name.startswith("_") or callable(getattr(as_unit, name))


def test_a_task_comes_back_as_it_was(store: SqlStore) -> None:
    task = a_task(state=State.DRAFT)
    later = dataclasses.replace(
        task,
        state=State.ANNOUNCED,
        deadline_ms=LARGEST,
        interested=3,
        reward=LARGEST,
        tick=2,
        tick_ends_ms=5,
        total_budget=0.1 + 0.2,
        totals=(0.1, 1e-300, 0.1 + 0.2),
        first_tick=1,
        asked=7,
        settled_tick=0,
        offer="ab",
        review_ends_ms=LARGEST,
        reference_ends_ms=LARGEST,
        round=4,
        last_sequence=9,
        last_hash="cd",
    )
    with store.begin() as tx:
        tx.add_task(task)
        assert tx.task(TASK, lock="share") == task
        tx.save_task(later)
    with store.read() as tx:
        assert tx.task(TASK, lock="change") == later
        assert tx.task(TASK).card.digest == CARD.digest


def test_saving_a_task_leaves_its_card_buyer_and_birth(store: SqlStore) -> None:
    with_task(store)
    other = dataclasses.replace(CARD, goal="another goal")
    with store.begin() as tx:
        changed = dataclasses.replace(
            a_task(), card=other, buyer="buyer:eve", created_ms=9, round=1
        )
        tx.save_task(changed)
        assert tx.task(TASK) == dataclasses.replace(a_task(), round=1)


def test_what_is_not_there_is_not_found(store: SqlStore) -> None:
    with store.begin() as tx:
        for ask in (
            lambda: tx.task("none"),
            lambda: tx.save_task(a_task("none")),
            lambda: tx.round("none", 0),
            lambda: tx.close_round("none", 0, at_ms=1, updates=0),
            lambda: tx.decide_allocation("none", ANN, "signed"),
            lambda: tx.deliver("none", ANN, delivered=1, earned=1, held=0),
            lambda: tx.earn("none", ANN, 1),
            lambda: tx.payout("none"),
            lambda: tx.revoke_token("none", at_ms=1),
        ):
            with pytest.raises(NotFound):
                ask()
        assert tx.interest("none", ANN) is None
        assert tx.replies_of("none", ANN) == []
        assert tx.replies("none", [ANN]) == {}
        assert tx.exit("none", ANN) is None
        assert tx.exits("none", [ANN]) == {}
        assert tx.count_asked("none", total_budget=1.0) == 0
        assert tx.allocation("none", ANN) is None
        assert tx.update("none", 0, ANN) is None
        assert tx.token_with("none") is None
        assert tx.device("none") is None
        assert tx.use_enrolment("none", at_ms=1) is None
        assert tx.balance("owner:nobody") == 0


def test_what_belongs_to_no_task_is_refused(store: SqlStore) -> None:
    for write in (
        lambda tx: tx.put_reply(a_reply(ANN)),
        lambda tx: tx.add_exit(an_exit(ANN)),
        lambda tx: tx.leave_task(an_exit(ANN), from_interests=True),
        lambda tx: tx.append_event(some_events(1)[0]),
        lambda tx: tx.add_allocations([a_line(ANN)]),
    ):
        with pytest.raises(NotFound), store.begin() as tx:
            write(tx)


def test_tasks_are_listed_newest_first(store: SqlStore) -> None:
    ids = [f"{number:024x}" for number in range(6)]
    states = [State.DRAFT, State.OPEN, State.ANNOUNCED, State.SETTLED, State.TRAINING]
    states += [State.COMPLETED]
    with store.begin() as tx:
        for task, state in zip(ids, states, strict=True):
            tx.add_task(a_task(task, state=state, buyer=ACME if int(task, 16) % 2 else "buyer:z"))

        def listed(**wanted) -> list[int]:
            return [int(task.id, 16) for task in tx.tasks(**({"limit": 10} | wanted))]

        assert listed() == [5, 4, 3, 2, 1, 0]
        assert listed(limit=2) == [5, 4]
        assert listed(before=ids[2]) == [1, 0]
        assert listed(buyer=ACME) == [5, 3, 1]
        for task in ids[2:4]:
            tx.put_interest(Interest(task, ANN, None, "", "", 1))
        tx.put_interest(Interest(ids[5], BOB, None, "", "", 1))
        tx.leave_task(an_exit(ANN, task=ids[2]), from_interests=True)
        tx.leave_task(an_exit(ANN, task=ids[3]), from_interests=False)
        assert listed(owner=ANN) == [3, 2]
        assert listed(owner=ANN, before=ids[3]) == [2]
        assert listed(owner="owner:nobody") == []
        assert listed(states=[State.OPEN, State.DRAFT]) == [1, 0]
        assert sorted(int(task.id, 16) for task in tx.active_tasks()) == [1, 2, 3, 4]
    with pytest.raises(Conflict), store.begin() as tx:
        tx.add_task(a_task(ids[0]))


def test_events_come_back_in_order(store: SqlStore) -> None:
    with_task(store)
    events = some_events(5)
    with store.begin() as tx:
        for event in events:
            tx.append_event(event)
        assert tx.events(TASK, limit=9) == events
        assert tx.events(TASK, after=1, limit=2) == events[2:4]
        assert tx.events("none", limit=9) == []


def test_an_event_has_no_second_and_follows_the_one_before(store: SqlStore) -> None:
    with_task(store)
    first, second, third = some_events(3)
    with store.begin() as tx:
        tx.append_event(first)
    loose = dataclasses.replace(second, previous=third.hash)
    for wrong in (first, dataclasses.replace(first, kind="other"), third, loose):
        with pytest.raises(Conflict), store.begin() as tx:
            tx.append_event(wrong)
    with store.begin() as tx:
        tx.append_event(second)
        assert tx.events(TASK, limit=9) == [first, second]


def test_interests_and_replies_replace_earlier_ones(store: SqlStore) -> None:
    with_task(store)
    first = Interest(task=TASK, owner=ANN, value=None, salt="s", leaf="l", at_ms=1)
    second = dataclasses.replace(first, value=1 / 3, salt="t", at_ms=2, zero_from=0.1)
    with store.begin() as tx:
        tx.put_interest(first)
        assert tx.interest(TASK, ANN) == first
        tx.put_interest(second)
        assert tx.interests(TASK) == [second]
        assert tx.count_interests(TASK) == 1
        assert tx.interests(TASK, after=ANN) == []
        tx.put_reply(a_reply(ANN))
        tx.put_reply(a_reply(BOB, tick=1))
        assert (tx.count_replies(TASK, 0), tx.count_replies(TASK, 1)) == (1, 1)
        tx.put_reply(a_reply(ANN, budget=0.25))
        tx.put_reply(a_reply(ANN, tick=1))
        by_tick = [a_reply(ANN, budget=0.25), a_reply(ANN, tick=1)]
        assert tx.replies_of(TASK, ANN) == by_tick
        assert tx.replies(TASK, [BOB, ANN, CAT]) == {ANN: by_tick, BOB: [a_reply(BOB, tick=1)]}
        assert (tx.count_replies(TASK, 0), tx.count_replies(TASK, 1)) == (1, 2)


def test_a_tick_waits_for_whoever_is_not_out_and_said_no_zero_below_it(store: SqlStore) -> None:
    with_task(store)
    dan = "owner:dan"
    with store.begin() as tx:
        for name in (ANN, BOB, CAT, dan):
            tx.put_interest(an_interest(name))
        assert tx.count_asked(TASK, total_budget=2.0) == 4
        tx.put_reply(a_reply(ANN))
        tx.put_reply(a_reply(BOB, budget=0.0))
        tx.put_reply(a_reply(CAT, budget=0.0, tick=1))  # to another tick
        tx.add_exit(an_exit(dan))
        assert tx.count_asked(TASK, total_budget=2.0) == 3
        assert tx.miss_tick(TASK, tick=0, total_budget=2.0, at_ms=5) == 1
        assert tx.exit(TASK, CAT) == Exit(TASK, CAT, 0, "missed", 5)
        assert tx.exits(TASK, [ANN, BOB, CAT, dan]).keys() == {CAT, dan}
        assert tx.count_exits(TASK) == 2
        assert tx.interest(TASK, BOB).zero_from == 2.0
        assert tx.interest(TASK, ANN).zero_from is None
        asked = {total: tx.count_asked(TASK, total_budget=total) for total in (1.9, 2.0, 3.0)}
        assert asked == {1.9: 2, 2.0: 1, 3.0: 1}


def test_a_zero_stands_from_the_smallest_total_that_it_was_said_to(store: SqlStore) -> None:
    with_task(store)
    with store.begin() as tx:
        tx.put_interest(an_interest(ANN))
        for tick, total in enumerate((4.0, 2.0, 3.0, 1.0)):
            if tick != 2:  # not asked: 3 is more than 2
                tx.put_reply(a_reply(ANN, budget=0.0, tick=tick))
            assert tx.miss_tick(TASK, tick=tick, total_budget=total, at_ms=5) == 0
            assert tx.interest(TASK, ANN).zero_from == min((4.0, 2.0, 3.0, 1.0)[: tick + 1])
        assert tx.exit(TASK, ANN) is None


def test_an_exit_is_for_good_and_the_first_one_counts(store: SqlStore) -> None:
    with_task(store)
    with store.begin() as tx:
        tx.put_interest(an_interest(ANN))
        tx.add_exit(an_exit(ANN, reason="missed", tick=3))
        tx.add_exit(an_exit(ANN, reason="declined", tick=4))
        assert tx.exit(TASK, ANN) == an_exit(ANN, reason="missed", tick=3)
        tx.add_exit(an_exit(BOB))  # of somebody whose interest is not kept
        assert tx.count_exits(TASK) == 1
    with pytest.raises(FedbourseError), store.begin() as tx:
        tx.add_exit(an_exit(CAT, reason="bored"))


@pytest.mark.parametrize("from_interests", [False, True])
def test_who_leaves_takes_its_replies_along_but_for_the_hashes_of_closed_ticks(
    store: SqlStore, from_interests: bool
) -> None:
    with_task(store)
    with store.begin() as tx:
        for name in (ANN, BOB):
            tx.put_interest(an_interest(name))
            for tick in range(3):
                tx.put_reply(a_reply(name, tick=tick))
        tx.leave_task(an_exit(ANN, tick=2), from_interests=from_interests)
        assert tx.replies_of(TASK, ANN) == [
            dataclasses.replace(a_reply(ANN, tick=tick), budget=None, salt="") for tick in range(2)
        ]
        assert len(tx.replies_of(TASK, BOB)) == 3
        assert [repliers(tx, tick) for tick in range(3)] == [[BOB]] * 3
        assert tx.count_replies(TASK, 2) == 1
        assert (tx.interest(TASK, ANN) is None) == from_interests
        assert tx.exit(TASK, ANN) == an_exit(ANN, tick=2)


def test_lines_are_decided_paid_dropped_and_erased(store: SqlStore) -> None:
    with_task(store)
    with store.begin() as tx:
        tx.put_interest(Interest(TASK, ANN, 2.0, "s", "l", 1))
        tx.put_reply(a_reply(ANN))
        tx.add_allocations(a_line(owner, position=n) for n, owner in enumerate((ANN, BOB, CAT)))
        tx.add_allocations([])
        tx.decide_allocation(TASK, ANN, "signed", signature="sig")
        tx.decide_allocation(TASK, BOB, "declined")
        tx.deliver(TASK, ANN, delivered=3, earned=4, held=0)
        tx.earn(TASK, ANN, 2)
        tx.earn(TASK, CAT, 9)
        rows = [
            (
                allocation.owner,
                allocation.state,
                allocation.delivered,
                allocation.earned,
                allocation.held,
            )
            for allocation in tx.allocations(TASK)
        ]
        assert rows == [
            (ANN, "signed", 3, 6, 0),
            (BOB, "declined", 0, 0, 0),
            (CAT, "offered", 0, 9, 0),
        ]
        assert tx.allocations(TASK, after=ANN, limit=1) == [tx.allocation(TASK, BOB, lock="change")]
        assert (tx.count_allocations(TASK), tx.count_allocations(TASK, state="declined")) == (3, 1)

        before = tx.allocation(TASK, ANN)
        tx.erase(TASK, ANN)
        assert tx.allocation(TASK, ANN) == dataclasses.replace(before, budget=None, salt="")
        assert tx.replies_of(TASK, ANN) == [dataclasses.replace(a_reply(ANN), budget=None, salt="")]
        assert tx.interest(TASK, ANN) == Interest(TASK, ANN, None, "", "l", 1)
        assert tx.allocation(TASK, BOB).budget == 0.5

        tx.drop_allocations(TASK)
        assert (tx.allocations(TASK), tx.count_allocations(TASK)) == ([], 0)
        tx.add_allocations([a_line(ANN)])
        assert tx.allocation(TASK, ANN) == a_line(ANN)


def test_no_line_holds_back_more_than_it_has_earned(store: SqlStore) -> None:
    with_task(store)
    for held, earned in ((-1, 0), (3, 2)):
        allocation = dataclasses.replace(a_line(ANN), held=held, earned=earned)
        with pytest.raises(FedbourseError), store.begin() as tx:
            tx.add_allocations([allocation])
    with store.begin() as tx:
        tx.add_allocations([dataclasses.replace(a_line(ANN), held=2, earned=2)])


@pytest.mark.slow
def test_many_lines_are_stored_at_once(store: SqlStore) -> None:
    with_task(store)
    allocations = [a_line(f"owner:{n:06}", position=n, budget=n / 7) for n in range(25_000)]
    with store.begin() as tx:
        tx.add_allocations(iter(allocations))
    with store.read() as tx:
        assert tx.allocations(TASK) == allocations
    with pytest.raises(Conflict), store.begin() as tx:
        tx.add_allocations([a_line("owner:new"), a_line("owner:000003")])
    with store.read() as tx:
        assert tx.allocation(TASK, "owner:new") is None


def test_names_are_in_the_order_of_code_points(store: SqlStore) -> None:
    with_task(store)
    names = ["owner:" + end for end in ("a", "B", "_", "-", "é", "z", "Z", "\uffee", "😀", "a b")]
    with store.begin() as tx:
        for name in names:
            tx.put_reply(a_reply(name))
            tx.put_interest(Interest(TASK, name, None, "", "", 1))
        tx.add_allocations([a_line(name) for name in names])
        assert repliers(tx) == sorted(names)
        assert [interest.owner for interest in tx.interests(TASK)] == sorted(names)
        assert [allocation.owner for allocation in tx.allocations(TASK)] == sorted(names)
        assert [allocation.owner for allocation in tx.allocations(TASK, after="owner:a")] == [
            name for name in sorted(names) if name > "owner:a"
        ]


def test_postgresql_is_told_to_compare_names_by_code_point(postgresql) -> None:
    # Where the cluster's own order is that of code points, only the catalogue shows the difference.
    import psycopg

    with psycopg.connect(postgresql.url("fedbourse_template")) as connection:
        rows = connection.execute(
            "SELECT table_name || '.' || column_name FROM information_schema.columns"
            " WHERE table_schema = 'public' AND collation_name = 'C'"
        ).fetchall()
    ordered = {
        "replies.owner",
        "exits.owner",
        "interests.owner",
        "allocations.owner",
        "updates.owner",
        "accounts.id",
    }
    ordered |= {"tasks.id", "tokens.id", "transfers.id", "transfers.debit", "replies.task"}
    assert ordered <= {name for (name,) in rows}


def test_floats_come_back_to_the_bit(store: SqlStore) -> None:
    with_task(store)
    rng = random.Random(1)
    floats = [0.0, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1, 1 / 3, 1e22]
    while len(floats) < 500:
        (number,) = struct.unpack("<d", rng.randbytes(8))
        if 0 < number < float("inf"):
            floats.append(number)
    owners = [f"owner:{n:04}" for n in range(len(floats))]
    with store.begin() as tx:
        for owner, number in zip(owners, floats, strict=True):
            tx.put_reply(a_reply(owner, budget=number))
        tx.add_allocations(
            a_line(o, budget=number) for o, number in zip(owners, floats, strict=True)
        )
    exact = [struct.pack("<d", number) for number in floats]
    with store.read() as tx:
        replies = tx.replies(TASK, owners)
        assert [struct.pack("<d", replies[owner][0].budget) for owner in owners] == exact
        assert [
            struct.pack("<d", allocation.budget) for allocation in tx.allocations(TASK)
        ] == exact


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -0.0])
def test_floats_that_cannot_come_back_are_refused(store: SqlStore, wrong: float) -> None:
    with_task(store)
    for write in (
        lambda tx: tx.put_reply(a_reply(ANN, budget=wrong)),
        lambda tx: tx.add_allocations([a_line(ANN, budget=wrong)]),
        lambda tx: tx.put_interest(Interest(TASK, ANN, wrong, "", "", 1)),
        lambda tx: tx.save_task(dataclasses.replace(a_task(), total_budget=wrong)),
    ):
        with pytest.raises(InvalidNumber, match="found"), store.begin() as tx:
            write(tx)


def test_integers_beyond_64_bits_are_refused(store: SqlStore) -> None:
    with_task(store)
    for write in (
        lambda tx: tx.save_task(dataclasses.replace(a_task(), deadline_ms=2**63)),
        lambda tx: tx.add_allocations([dataclasses.replace(a_line(ANN), payment=2**63)]),
        lambda tx: tx.add_allocations([dataclasses.replace(a_line(ANN), payment=-1)]),
    ):
        with pytest.raises(InvalidInput), store.begin() as tx:
            write(tx)


def test_rounds_and_updates_come_back(store: SqlStore) -> None:
    with_task(store)
    model = bytes(range(256)) * 40
    round_ = Round(TASK, 0, model, "mh", "q", "p", 1, 2)
    updates = [Update(TASK, 0, owner, b"\0\1\xff" + model, "h", "{}", 5) for owner in (ANN, BOB)]
    with store.begin() as tx:
        tx.add_round(round_)
        for update in reversed(updates):
            tx.add_update(update)
        assert tx.round(TASK, 0) == round_
        dropped = [dataclasses.replace(update, vector=None) for update in updates]
        assert tx.updates(TASK, 0) == dropped
        assert tx.update(TASK, 0, BOB) == tx.last_update(TASK, BOB) == dropped[1]
        found = list(tx.vectors(TASK, 0, at_once=1))
        assert found == [(update.owner, update.vector) for update in updates]
        assert tx.count_updates(TASK, 0) == 2
    for again in (lambda u: u.add_update(updates[0]), lambda u: u.add_round(round_)):
        with pytest.raises(Conflict), store.begin() as tx:
            again(tx)
    with store.begin() as tx:
        tx.close_round(TASK, 0, at_ms=9, updates=2)
        closed = dataclasses.replace(round_, closed_ms=9, updates=2, model=b"")
        assert tx.round(TASK, 0) == closed
        assert list(tx.vectors(TASK, 0, at_once=9)) == [(ANN, None), (BOB, None)]
        assert tx.updates(TASK, 0) == dropped
    with store.read() as tx:
        assert (tx.has_round(TASK, 0), tx.has_round(TASK, 1)) == (True, False)
        assert tx.request_hash(TASK, 0) == "q"
        with pytest.raises(NotFound, match="no round 1"):
            tx.request_hash(TASK, 1)


def test_refused_updates_are_counted_once_a_round_and_sums_are_replaced(store: SqlStore) -> None:
    with_task(store)
    with store.begin() as tx:
        for number in range(2):
            tx.add_round(Round(TASK, number, b"", "mh", "q", "p", 1, 2))
        for number, reason in ((0, "late"), (0, "norm"), (1, "norm")):
            tx.put_refused_update(RefusedUpdate(TASK, number, BOB, reason, 5))
        tx.put_refused_update(RefusedUpdate(TASK, 0, ANN, "late", 5))
        assert tx.refused_updates(TASK, [BOB, ANN]) == {ANN: {"late": 1}, BOB: {"norm": 2}}
        assert tx.refused_updates(TASK, [BOB, "owner:zed"]) == {BOB: {"norm": 2}}
        assert tx.count_refused(TASK) == {"late": 1, "norm": 2}
        first = [
            DeviceStatistics(TASK, BOB, 1, 2.5, 1, -0.5, 0, "h"),
            DeviceStatistics(TASK, ANN, 1, 0.5),
        ]
        tx.put_device_statistics(first)
        tx.put_device_statistics([])
        assert tx.device_statistics(TASK) == first[::-1]
        assert tx.device_statistics(TASK, [BOB]) == first[:1]
        assert tx.device_statistics(TASK, []) == []
        again = dataclasses.replace(first[0], updates=2, squares=1e300)
        tx.put_device_statistics([again])
        assert tx.device_statistics(TASK) == [first[1], again]
        assert tx.versions([TASK, "0" * 24]) == {TASK: TaskVersion(State.OPEN, 0, 0)}
        assert tx.versions([]) == {}


def test_tokens_come_back_and_end(store: SqlStore) -> None:
    first = Token("t1", "h1", ACME, frozenset({"buyer", "auditor"}), 1)
    second = Token("t2", "h2", "operator:main", frozenset(), 1, expires_ms=LARGEST)
    with store.begin() as tx:
        tx.add_token(second)
        tx.add_token(first)
        assert tx.token_with("h1") == first
        assert tx.tokens(limit=9) == [first, second]
        assert tx.tokens(after="t1", limit=9) == [second]
        tx.revoke_token("t1", at_ms=5)
        tx.revoke_token("t1", at_ms=6)
        assert tx.token_with("h1") == dataclasses.replace(first, revoked_ms=5)


def test_tokens_of_a_scope_are_live_until_they_end(store: SqlStore) -> None:
    with store.begin() as tx:
        for number, (scopes, ends) in enumerate(
            [({"operator"}, None), ({"auditor", "operator"}, 9), ({"buyer"}, None), (set(), None)]
        ):
            token = Token(f"t{number}", f"h{number}", ACME, frozenset(scopes), 1, expires_ms=ends)
            tx.add_token(token)
        assert tx.live_tokens("operator", at_ms=8, limit=9) == ["t0", "t1"]
        assert tx.live_tokens("operator", at_ms=8, limit=1) == ["t0"]
        assert tx.live_tokens("operator", at_ms=9, limit=9) == ["t0"]
        tx.revoke_token("t0", at_ms=5)
        assert tx.live_tokens("operator", at_ms=8, limit=9) == ["t1"]


def test_a_one_time_token_is_used_once_and_in_time(store: SqlStore) -> None:
    with store.begin() as tx:
        tx.add_enrolment(Enrolment("h", ANN, expires_ms=10))
        tx.add_enrolment(Enrolment("old", ANN, expires_ms=10))
        assert tx.use_enrolment("old", at_ms=10) is None
        assert tx.use_enrolment("h", at_ms=9) == ANN
        assert tx.use_enrolment("h", at_ms=9) is None


def test_an_owner_has_one_live_device(store: SqlStore) -> None:
    first, second = (EnrolledDevice(id, ANN, f"key {id}", at) for id, at in (("d1", 1), ("d2", 2)))
    with store.begin() as tx:
        tx.put_device(first)
        tx.put_device(EnrolledDevice("d3", BOB, "key d3", 1))
        tx.put_device(second)
        assert tx.device("d1") == dataclasses.replace(first, retired_ms=2)
        assert tx.device("d2") == second
        assert tx.device("d3").retired_ms is None
        tx.put_device(dataclasses.replace(first, enrolled_ms=3))
        assert tx.device("d1") == dataclasses.replace(first, enrolled_ms=3)
        assert tx.device("d2").retired_ms == 3
    with pytest.raises(Conflict, match="another owner"), store.begin() as tx:
        tx.put_device(EnrolledDevice("d1", BOB, "key d1", 4))
    with store.read() as tx:
        assert tx.device("d3").retired_ms is None


def test_a_nonce_is_taken_once_until_it_is_purged(store: SqlStore) -> None:
    with store.begin() as tx:
        assert tx.remember_nonce("d1", "n", expires_ms=10)
        assert not tx.remember_nonce("d1", "n", expires_ms=99)
        assert tx.remember_nonce("d2", "n", expires_ms=20)
        tx.purge(now_ms=15)
        assert tx.remember_nonce("d1", "n", expires_ms=30)
        assert not tx.remember_nonce("d2", "n", expires_ms=30)


def test_a_session_stays_ended_until_it_would_have_been_over(store: SqlStore) -> None:
    with store.begin() as tx:
        tx.end_session("one", expires_ms=10)
        tx.end_session("one", expires_ms=10)
        tx.end_session("two", expires_ms=20)
    with store.begin() as tx:
        assert tx.has_ended("one")
        assert not tx.has_ended("three")
        tx.purge(now_ms=15)
        assert (tx.has_ended("one"), tx.has_ended("two")) == (False, True)


def test_a_stored_response_is_returned_until_it_is_purged(store: SqlStore) -> None:
    response = Response("f", 201, '{"é": 1}')
    with store.begin() as tx:
        assert tx.claim(ANN, "key", "f", expires_ms=5) is None
        tx.keep_response(ANN, "key", response)
        assert tx.claim(BOB, "key", "f", expires_ms=50) is None
        with pytest.raises(NotFound):
            tx.keep_response(ANN, "other", response)
    with store.begin() as tx:
        assert tx.claim(ANN, "key", "other", expires_ms=6) == response
        with pytest.raises(Conflict, match="has no response"):
            tx.claim(BOB, "key", "f", expires_ms=51)
        tx.purge(now_ms=6)
        assert tx.claim(ANN, "key", "g", expires_ms=7) is None


def test_nothing_counts_of_a_transaction_that_raises(store: SqlStore) -> None:
    def fails() -> None:
        with store.begin() as tx:
            tx.add_task(a_task())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    with store.read() as tx, pytest.raises(NotFound):
        tx.task(TASK)


def test_a_savepoint_undoes_only_what_is_inside(store: SqlStore) -> None:
    with store.begin() as tx:
        tx.add_task(a_task())
        with suppress(Conflict), tx.savepoint():
            tx.put_reply(a_reply(ANN))
            tx.append_event(some_events(2)[1])
            pytest.fail("an event without the one before was stored")
        with tx.savepoint():
            tx.put_reply(a_reply(BOB))
    with store.read() as tx:
        assert repliers(tx) == [BOB]


def test_a_reader_sees_one_moment_and_writes_nothing(store: SqlStore) -> None:
    with_task(store)
    with store.read() as tx:
        assert tx.count_replies(TASK, 0) == 0
        with store.begin() as writer:
            writer.put_reply(a_reply(ANN))
        assert tx.count_replies(TASK, 0) == 0
    with pytest.raises(CannotWrite), store.read() as tx:
        tx.put_reply(a_reply(BOB))
    with store.begin() as tx:
        tx.put_reply(a_reply(BOB))
        assert tx.count_replies(TASK, 0) == 2


def test_a_card_is_never_changed_by_anybody(store: SqlStore) -> None:
    with_task(store)
    for statement in (
        "UPDATE tasks SET card = '{}'",
        "UPDATE tasks SET buyer = 'buyer:eve'",
        "UPDATE tasks SET created_ms = 2",
        "DELETE FROM tasks",
    ):
        with pytest.raises(Conflict, match="never changed"), store.begin() as tx:
            tx._connection.execute(text(statement))
    with store.begin() as tx:
        tx._connection.execute(text("UPDATE tasks SET round = 3"))


def test_what_is_erased_leaves_an_sqlite_file(tmp_path) -> None:
    file = tmp_path / "market.db"
    with SqlStore(f"sqlite:///{file}") as store:
        with_task(store)
        with store.begin() as tx:
            tx.put_reply(dataclasses.replace(a_reply(ANN), salt="pepper" * 9))
    assert b"pepper" * 9 in file.read_bytes()
    with SqlStore(f"sqlite:///{file}") as store, store.begin() as tx:
        tx.erase(TASK, ANN)
    assert b"pepper" not in file.read_bytes()
