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
from fedbourse.market.parties import Device, Enrolment, Token
from fedbourse.market.ports import Store, Unit
from fedbourse.market.task import (
    Answer,
    Drift,
    Exit,
    Interest,
    Mark,
    RefusedAnswer,
    Response,
    Round,
    State,
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
    with as_store.begin() as unit:
        as_unit: Unit = unit
    for protocol in Unit.__mro__[:-2]:
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
        round=4,
        last_sequence=9,
        last_hash="cd",
    )
    with store.begin() as unit:
        unit.add_task(task)
        assert unit.task(TASK, lock="share") == task
        unit.save_task(later)
    with store.read() as unit:
        assert unit.task(TASK, lock="change") == later
        assert unit.task(TASK).card.digest == CARD.digest


def test_saving_a_task_leaves_its_card_buyer_and_birth(store: SqlStore) -> None:
    with_task(store)
    other = dataclasses.replace(CARD, goal="another goal")
    with store.begin() as unit:
        changed = dataclasses.replace(
            a_task(), card=other, buyer="buyer:eve", created_ms=9, round=1
        )
        unit.save_task(changed)
        assert unit.task(TASK) == dataclasses.replace(a_task(), round=1)


def test_what_is_not_there_is_not_found(store: SqlStore) -> None:
    with store.begin() as unit:
        for ask in (
            lambda: unit.task("none"),
            lambda: unit.save_task(a_task("none")),
            lambda: unit.round("none", 0),
            lambda: unit.close_round("none", 0, at_ms=1, answers=0),
            lambda: unit.decide_line("none", ANN, "signed"),
            lambda: unit.deliver("none", ANN, answered=1, earned=1),
            lambda: unit.earn("none", ANN, 1),
            lambda: unit.payout("none"),
            lambda: unit.revoke_token("none", at_ms=1),
        ):
            with pytest.raises(NotFound):
                ask()
        assert unit.interest("none", ANN) is None
        assert unit.replies_of("none", ANN) == []
        assert unit.replies("none", [ANN]) == {}
        assert unit.exit("none", ANN) is None
        assert unit.exits("none", [ANN]) == {}
        assert unit.count_asked("none", total_budget=1.0) == 0
        assert unit.line("none", ANN) is None
        assert unit.answer("none", 0, ANN) is None
        assert unit.token_with("none") is None
        assert unit.device("none") is None
        assert unit.use_enrolment("none", at_ms=1) is None
        assert unit.balance("owner:nobody") == 0


def test_what_belongs_to_no_task_is_refused(store: SqlStore) -> None:
    for write in (
        lambda unit: unit.put_reply(a_reply(ANN)),
        lambda unit: unit.add_exit(an_exit(ANN)),
        lambda unit: unit.withdraw(an_exit(ANN), from_interests=True),
        lambda unit: unit.append_event(some_events(1)[0]),
        lambda unit: unit.add_lines([a_line(ANN)]),
    ):
        with pytest.raises(NotFound), store.begin() as unit:
            write(unit)


def test_tasks_are_listed_newest_first(store: SqlStore) -> None:
    ids = [f"{number:024x}" for number in range(6)]
    states = [State.DRAFT, State.OPEN, State.ANNOUNCED, State.SETTLED, State.TRAINING]
    states += [State.COMPLETED]
    with store.begin() as unit:
        for task, state in zip(ids, states, strict=True):
            unit.add_task(a_task(task, state=state, buyer=ACME if int(task, 16) % 2 else "buyer:z"))

        def listed(**wanted) -> list[int]:
            return [int(task.id, 16) for task in unit.tasks(**({"limit": 10} | wanted))]

        assert listed() == [5, 4, 3, 2, 1, 0]
        assert listed(limit=2) == [5, 4]
        assert listed(before=ids[2]) == [1, 0]
        assert listed(buyer=ACME) == [5, 3, 1]
        for task in ids[2:4]:
            unit.put_interest(Interest(task, ANN, None, "", "", 1))
        unit.put_interest(Interest(ids[5], BOB, None, "", "", 1))
        unit.withdraw(an_exit(ANN, task=ids[2]), from_interests=True)
        unit.withdraw(an_exit(ANN, task=ids[3]), from_interests=False)
        assert listed(owner=ANN) == [3, 2]
        assert listed(owner=ANN, before=ids[3]) == [2]
        assert listed(owner="owner:nobody") == []
        assert listed(states=[State.OPEN, State.DRAFT]) == [1, 0]
        assert sorted(int(task.id, 16) for task in unit.active_tasks()) == [1, 2, 3, 4]
    with pytest.raises(Conflict), store.begin() as unit:
        unit.add_task(a_task(ids[0]))


def test_events_come_back_in_order(store: SqlStore) -> None:
    with_task(store)
    events = some_events(5)
    with store.begin() as unit:
        for event in events:
            unit.append_event(event)
        assert unit.events(TASK, limit=9) == events
        assert unit.events(TASK, after=1, limit=2) == events[2:4]
        assert unit.events("none", limit=9) == []


def test_an_event_has_no_second_and_follows_the_one_before(store: SqlStore) -> None:
    with_task(store)
    first, second, third = some_events(3)
    with store.begin() as unit:
        unit.append_event(first)
    loose = dataclasses.replace(second, previous=third.hash)
    for wrong in (first, dataclasses.replace(first, kind="other"), third, loose):
        with pytest.raises(Conflict), store.begin() as unit:
            unit.append_event(wrong)
    with store.begin() as unit:
        unit.append_event(second)
        assert unit.events(TASK, limit=9) == [first, second]


def test_interests_and_replies_replace_earlier_ones(store: SqlStore) -> None:
    with_task(store)
    first = Interest(task=TASK, owner=ANN, value=None, salt="s", leaf="l", at_ms=1)
    second = dataclasses.replace(first, value=1 / 3, salt="t", at_ms=2, zero_from=0.1)
    with store.begin() as unit:
        unit.put_interest(first)
        assert unit.interest(TASK, ANN) == first
        unit.put_interest(second)
        assert unit.interests(TASK) == [second]
        assert unit.count_interests(TASK) == 1
        assert unit.interests(TASK, after=ANN) == []
        unit.put_reply(a_reply(ANN))
        unit.put_reply(a_reply(BOB, tick=1))
        assert (unit.count_replies(TASK, 0), unit.count_replies(TASK, 1)) == (1, 1)
        unit.put_reply(a_reply(ANN, budget=0.25))
        unit.put_reply(a_reply(ANN, tick=1))
        by_tick = [a_reply(ANN, budget=0.25), a_reply(ANN, tick=1)]
        assert unit.replies_of(TASK, ANN) == by_tick
        assert unit.replies(TASK, [BOB, ANN, CAT]) == {ANN: by_tick, BOB: [a_reply(BOB, tick=1)]}
        assert (unit.count_replies(TASK, 0), unit.count_replies(TASK, 1)) == (1, 2)


def test_a_tick_waits_for_whoever_is_not_out_and_said_no_zero_below_it(store: SqlStore) -> None:
    with_task(store)
    dan = "owner:dan"
    with store.begin() as unit:
        for name in (ANN, BOB, CAT, dan):
            unit.put_interest(an_interest(name))
        assert unit.count_asked(TASK, total_budget=2.0) == 4
        unit.put_reply(a_reply(ANN))
        unit.put_reply(a_reply(BOB, budget=0.0))
        unit.put_reply(a_reply(CAT, budget=0.0, tick=1))  # to another tick
        unit.add_exit(an_exit(dan))
        assert unit.count_asked(TASK, total_budget=2.0) == 3
        assert unit.miss_tick(TASK, tick=0, total_budget=2.0, at_ms=5) == 1
        assert unit.exit(TASK, CAT) == Exit(TASK, CAT, 0, "missed", 5)
        assert unit.exits(TASK, [ANN, BOB, CAT, dan]).keys() == {CAT, dan}
        assert unit.count_exits(TASK) == 2
        assert unit.interest(TASK, BOB).zero_from == 2.0
        assert unit.interest(TASK, ANN).zero_from is None
        asked = {total: unit.count_asked(TASK, total_budget=total) for total in (1.9, 2.0, 3.0)}
        assert asked == {1.9: 2, 2.0: 1, 3.0: 1}


def test_a_zero_stands_from_the_smallest_total_that_it_was_said_to(store: SqlStore) -> None:
    with_task(store)
    with store.begin() as unit:
        unit.put_interest(an_interest(ANN))
        for tick, total in enumerate((4.0, 2.0, 3.0, 1.0)):
            if tick != 2:  # not asked: 3 is more than 2
                unit.put_reply(a_reply(ANN, budget=0.0, tick=tick))
            assert unit.miss_tick(TASK, tick=tick, total_budget=total, at_ms=5) == 0
            assert unit.interest(TASK, ANN).zero_from == min((4.0, 2.0, 3.0, 1.0)[: tick + 1])
        assert unit.exit(TASK, ANN) is None


def test_an_exit_is_for_good_and_the_first_one_counts(store: SqlStore) -> None:
    with_task(store)
    with store.begin() as unit:
        unit.put_interest(an_interest(ANN))
        unit.add_exit(an_exit(ANN, reason="missed", tick=3))
        unit.add_exit(an_exit(ANN, reason="declined", tick=4))
        assert unit.exit(TASK, ANN) == an_exit(ANN, reason="missed", tick=3)
        unit.add_exit(an_exit(BOB))  # of somebody whose interest is not kept
        assert unit.count_exits(TASK) == 1
    with pytest.raises(FedbourseError), store.begin() as unit:
        unit.add_exit(an_exit(CAT, reason="bored"))


@pytest.mark.parametrize("from_interests", [False, True])
def test_who_leaves_takes_its_replies_along_but_for_the_hashes_of_closed_ticks(
    store: SqlStore, from_interests: bool
) -> None:
    with_task(store)
    with store.begin() as unit:
        for name in (ANN, BOB):
            unit.put_interest(an_interest(name))
            for tick in range(3):
                unit.put_reply(a_reply(name, tick=tick))
        unit.withdraw(an_exit(ANN, tick=2), from_interests=from_interests)
        assert unit.replies_of(TASK, ANN) == [
            dataclasses.replace(a_reply(ANN, tick=tick), budget=None, salt="") for tick in range(2)
        ]
        assert len(unit.replies_of(TASK, BOB)) == 3
        assert [repliers(unit, tick) for tick in range(3)] == [[BOB]] * 3
        assert unit.count_replies(TASK, 2) == 1
        assert (unit.interest(TASK, ANN) is None) == from_interests
        assert unit.exit(TASK, ANN) == an_exit(ANN, tick=2)


def test_lines_are_decided_paid_dropped_and_erased(store: SqlStore) -> None:
    with_task(store)
    with store.begin() as unit:
        unit.put_interest(Interest(TASK, ANN, 2.0, "s", "l", 1))
        unit.put_reply(a_reply(ANN))
        unit.add_lines(a_line(owner, position=n) for n, owner in enumerate((ANN, BOB, CAT)))
        unit.add_lines([])
        unit.decide_line(TASK, ANN, "signed", signature="sig")
        unit.decide_line(TASK, BOB, "declined")
        unit.deliver(TASK, ANN, answered=3, earned=4)
        unit.earn(TASK, ANN, 2)
        unit.earn(TASK, CAT, 9)
        rows = [
            (line.owner, line.state, line.answered, line.earned, line.held)
            for line in unit.lines(TASK)
        ]
        assert rows == [
            (ANN, "signed", 3, 6, 0),
            (BOB, "declined", 0, 0, 0),
            (CAT, "offered", 0, 9, 0),
        ]
        assert unit.lines(TASK, after=ANN, limit=1) == [unit.line(TASK, BOB, lock="change")]
        assert (unit.count_lines(TASK), unit.count_lines(TASK, state="declined")) == (3, 1)

        before = unit.line(TASK, ANN)
        unit.erase(TASK, ANN)
        assert unit.line(TASK, ANN) == dataclasses.replace(before, budget=None, salt="")
        assert unit.replies_of(TASK, ANN) == [
            dataclasses.replace(a_reply(ANN), budget=None, salt="")
        ]
        assert unit.interest(TASK, ANN) == Interest(TASK, ANN, None, "", "l", 1)
        assert unit.line(TASK, BOB).budget == 0.5

        unit.drop_lines(TASK)
        assert (unit.lines(TASK), unit.count_lines(TASK)) == ([], 0)
        unit.add_lines([a_line(ANN)])
        assert unit.line(TASK, ANN) == a_line(ANN)


def test_no_line_holds_back_more_than_it_has_earned(store: SqlStore) -> None:
    with_task(store)
    for held, earned in ((-1, 0), (3, 2)):
        line = dataclasses.replace(a_line(ANN), held=held, earned=earned)
        with pytest.raises(FedbourseError), store.begin() as unit:
            unit.add_lines([line])
    with store.begin() as unit:
        unit.add_lines([dataclasses.replace(a_line(ANN), held=2, earned=2)])


@pytest.mark.slow
def test_many_lines_are_stored_at_once(store: SqlStore) -> None:
    with_task(store)
    lines = [a_line(f"owner:{n:06}", position=n, budget=n / 7) for n in range(25_000)]
    with store.begin() as unit:
        unit.add_lines(iter(lines))
    with store.read() as unit:
        assert unit.lines(TASK) == lines
    with pytest.raises(Conflict), store.begin() as unit:
        unit.add_lines([a_line("owner:new"), a_line("owner:000003")])
    with store.read() as unit:
        assert unit.line(TASK, "owner:new") is None


def test_names_are_in_the_order_of_code_points(store: SqlStore) -> None:
    with_task(store)
    names = ["owner:" + end for end in ("a", "B", "_", "-", "é", "z", "Z", "\uffee", "😀", "a b")]
    with store.begin() as unit:
        for name in names:
            unit.put_reply(a_reply(name))
            unit.put_interest(Interest(TASK, name, None, "", "", 1))
        unit.add_lines([a_line(name) for name in names])
        assert repliers(unit) == sorted(names)
        assert [interest.owner for interest in unit.interests(TASK)] == sorted(names)
        assert [line.owner for line in unit.lines(TASK)] == sorted(names)
        assert [line.owner for line in unit.lines(TASK, after="owner:a")] == [
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
        "lines.owner",
        "answers.owner",
        "accounts.id",
    }
    ordered |= {"tasks.id", "tokens.id", "transfers.id", "transfers.source", "replies.task"}
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
    with store.begin() as unit:
        for owner, number in zip(owners, floats, strict=True):
            unit.put_reply(a_reply(owner, budget=number))
        unit.add_lines(a_line(o, budget=number) for o, number in zip(owners, floats, strict=True))
    exact = [struct.pack("<d", number) for number in floats]
    with store.read() as unit:
        replies = unit.replies(TASK, owners)
        assert [struct.pack("<d", replies[owner][0].budget) for owner in owners] == exact
        assert [struct.pack("<d", line.budget) for line in unit.lines(TASK)] == exact


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -0.0])
def test_floats_that_cannot_come_back_are_refused(store: SqlStore, wrong: float) -> None:
    with_task(store)
    for write in (
        lambda unit: unit.put_reply(a_reply(ANN, budget=wrong)),
        lambda unit: unit.add_lines([a_line(ANN, budget=wrong)]),
        lambda unit: unit.put_interest(Interest(TASK, ANN, wrong, "", "", 1)),
        lambda unit: unit.save_task(dataclasses.replace(a_task(), total_budget=wrong)),
    ):
        with pytest.raises(InvalidNumber, match="found"), store.begin() as unit:
            write(unit)


def test_integers_beyond_64_bits_are_refused(store: SqlStore) -> None:
    with_task(store)
    for write in (
        lambda unit: unit.save_task(dataclasses.replace(a_task(), deadline_ms=2**63)),
        lambda unit: unit.add_lines([dataclasses.replace(a_line(ANN), payment=2**63)]),
        lambda unit: unit.add_lines([dataclasses.replace(a_line(ANN), payment=-1)]),
    ):
        with pytest.raises(InvalidInput), store.begin() as unit:
            write(unit)


def test_rounds_and_answers_come_back(store: SqlStore) -> None:
    with_task(store)
    model = bytes(range(256)) * 40
    round_ = Round(TASK, 0, model, "mh", "q", "p", 1, 2)
    answers = [Answer(TASK, 0, owner, b"\0\1\xff" + model, "h", "{}", 5) for owner in (ANN, BOB)]
    with store.begin() as unit:
        unit.add_round(round_)
        for answer in reversed(answers):
            unit.add_answer(answer)
        assert unit.round(TASK, 0) == round_
        dropped = [dataclasses.replace(answer, vector=None) for answer in answers]
        assert unit.answers(TASK, 0) == dropped
        assert unit.answer(TASK, 0, BOB) == unit.last_answer(TASK, BOB) == dropped[1]
        found = list(unit.vectors(TASK, 0, at_once=1))
        assert found == [(answer.owner, answer.vector) for answer in answers]
        assert unit.count_answers(TASK, 0) == 2
    for again in (lambda u: u.add_answer(answers[0]), lambda u: u.add_round(round_)):
        with pytest.raises(Conflict), store.begin() as unit:
            again(unit)
    with store.begin() as unit:
        unit.close_round(TASK, 0, at_ms=9, answers=2)
        closed = dataclasses.replace(round_, closed_ms=9, answers=2, model=b"")
        assert unit.round(TASK, 0) == closed
        assert list(unit.vectors(TASK, 0, at_once=9)) == [(ANN, None), (BOB, None)]
        assert unit.answers(TASK, 0) == dropped
    with store.read() as unit:
        assert (unit.has_round(TASK, 0), unit.has_round(TASK, 1)) == (True, False)
        assert unit.query_hash(TASK, 0) == "q"
        with pytest.raises(NotFound, match="no round 1"):
            unit.query_hash(TASK, 1)


def test_refused_answers_are_counted_once_a_round_and_sums_are_replaced(store: SqlStore) -> None:
    with_task(store)
    with store.begin() as unit:
        for number in range(2):
            unit.add_round(Round(TASK, number, b"", "mh", "q", "p", 1, 2))
        for number, reason in ((0, "late"), (0, "norm"), (1, "norm")):
            unit.put_refused_answer(RefusedAnswer(TASK, number, BOB, reason, 5))
        unit.put_refused_answer(RefusedAnswer(TASK, 0, ANN, "late", 5))
        assert unit.refused_answers(TASK) == {ANN: {"late": 1}, BOB: {"norm": 2}}
        first = [Drift(TASK, BOB, 1, 2.5, 1, -0.5, 0, "h"), Drift(TASK, ANN, 1, 0.5)]
        unit.put_drifts(first)
        unit.put_drifts([])
        assert unit.drifts(TASK) == first[::-1]
        again = dataclasses.replace(first[0], answers=2, squares=1e300)
        unit.put_drifts([again])
        assert unit.drifts(TASK) == [first[1], again]
        assert unit.marks([TASK, "0" * 24]) == {TASK: Mark(State.OPEN, 0, 0)}
        assert unit.marks([]) == {}


def test_tokens_come_back_and_end(store: SqlStore) -> None:
    first = Token("t1", "h1", ACME, frozenset({"buyer", "auditor"}), 1)
    second = Token("t2", "h2", "operator:main", frozenset(), 1, expires_ms=LARGEST)
    with store.begin() as unit:
        unit.add_token(second)
        unit.add_token(first)
        assert unit.token_with("h1") == first
        assert unit.tokens(limit=9) == [first, second]
        assert unit.tokens(after="t1", limit=9) == [second]
        unit.revoke_token("t1", at_ms=5)
        unit.revoke_token("t1", at_ms=6)
        assert unit.token_with("h1") == dataclasses.replace(first, revoked_ms=5)


def test_tokens_of_a_scope_are_live_until_they_end(store: SqlStore) -> None:
    with store.begin() as unit:
        for number, (scopes, ends) in enumerate(
            [({"operator"}, None), ({"auditor", "operator"}, 9), ({"buyer"}, None), (set(), None)]
        ):
            token = Token(f"t{number}", f"h{number}", ACME, frozenset(scopes), 1, expires_ms=ends)
            unit.add_token(token)
        assert unit.live_tokens("operator", at_ms=8, limit=9) == ["t0", "t1"]
        assert unit.live_tokens("operator", at_ms=8, limit=1) == ["t0"]
        assert unit.live_tokens("operator", at_ms=9, limit=9) == ["t0"]
        unit.revoke_token("t0", at_ms=5)
        assert unit.live_tokens("operator", at_ms=8, limit=9) == ["t1"]


def test_a_one_time_token_is_used_once_and_in_time(store: SqlStore) -> None:
    with store.begin() as unit:
        unit.add_enrolment(Enrolment("h", ANN, expires_ms=10))
        unit.add_enrolment(Enrolment("old", ANN, expires_ms=10))
        assert unit.use_enrolment("old", at_ms=10) is None
        assert unit.use_enrolment("h", at_ms=9) == ANN
        assert unit.use_enrolment("h", at_ms=9) is None


def test_an_owner_has_one_live_device(store: SqlStore) -> None:
    first, second = (Device(id, ANN, f"key {id}", at) for id, at in (("d1", 1), ("d2", 2)))
    with store.begin() as unit:
        unit.put_device(first)
        unit.put_device(Device("d3", BOB, "key d3", 1))
        unit.put_device(second)
        assert unit.device("d1") == dataclasses.replace(first, retired_ms=2)
        assert unit.device("d2") == second
        assert unit.device("d3").retired_ms is None
        unit.put_device(dataclasses.replace(first, enrolled_ms=3))
        assert unit.device("d1") == dataclasses.replace(first, enrolled_ms=3)
        assert unit.device("d2").retired_ms == 3
    with pytest.raises(Conflict, match="another owner"), store.begin() as unit:
        unit.put_device(Device("d1", BOB, "key d1", 4))
    with store.read() as unit:
        assert unit.device("d3").retired_ms is None


def test_a_nonce_is_taken_once_until_it_is_purged(store: SqlStore) -> None:
    with store.begin() as unit:
        assert unit.remember_nonce("d1", "n", expires_ms=10)
        assert not unit.remember_nonce("d1", "n", expires_ms=99)
        assert unit.remember_nonce("d2", "n", expires_ms=20)
        unit.purge(now_ms=15)
        assert unit.remember_nonce("d1", "n", expires_ms=30)
        assert not unit.remember_nonce("d2", "n", expires_ms=30)


def test_a_session_stays_ended_until_it_would_have_been_over(store: SqlStore) -> None:
    with store.begin() as unit:
        unit.end_session("one", expires_ms=10)
        unit.end_session("one", expires_ms=10)
        unit.end_session("two", expires_ms=20)
    with store.begin() as unit:
        assert unit.has_ended("one")
        assert not unit.has_ended("three")
        unit.purge(now_ms=15)
        assert (unit.has_ended("one"), unit.has_ended("two")) == (False, True)


def test_a_kept_response_is_given_again_until_it_is_purged(store: SqlStore) -> None:
    response = Response("f", 201, '{"é": 1}')
    with store.begin() as unit:
        assert unit.claim(ANN, "key", "f", expires_ms=5) is None
        unit.keep_response(ANN, "key", response)
        assert unit.claim(BOB, "key", "f", expires_ms=50) is None
        with pytest.raises(NotFound):
            unit.keep_response(ANN, "other", response)
    with store.begin() as unit:
        assert unit.claim(ANN, "key", "other", expires_ms=6) == response
        with pytest.raises(Conflict, match="never answered"):
            unit.claim(BOB, "key", "f", expires_ms=51)
        unit.purge(now_ms=6)
        assert unit.claim(ANN, "key", "g", expires_ms=7) is None


def test_nothing_counts_of_a_transaction_that_raises(store: SqlStore) -> None:
    def fails() -> None:
        with store.begin() as unit:
            unit.add_task(a_task())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    with store.read() as unit, pytest.raises(NotFound):
        unit.task(TASK)


def test_a_savepoint_undoes_only_what_is_inside(store: SqlStore) -> None:
    with store.begin() as unit:
        unit.add_task(a_task())
        with suppress(Conflict), unit.savepoint():
            unit.put_reply(a_reply(ANN))
            unit.append_event(some_events(2)[1])
            pytest.fail("an event without the one before was stored")
        with unit.savepoint():
            unit.put_reply(a_reply(BOB))
    with store.read() as unit:
        assert repliers(unit) == [BOB]


def test_a_reader_sees_one_moment_and_writes_nothing(store: SqlStore) -> None:
    with_task(store)
    with store.read() as unit:
        assert unit.count_replies(TASK, 0) == 0
        with store.begin() as writer:
            writer.put_reply(a_reply(ANN))
        assert unit.count_replies(TASK, 0) == 0
    with pytest.raises(CannotWrite), store.read() as unit:
        unit.put_reply(a_reply(BOB))
    with store.begin() as unit:
        unit.put_reply(a_reply(BOB))
        assert unit.count_replies(TASK, 0) == 2


def test_a_card_is_never_changed_by_anybody(store: SqlStore) -> None:
    with_task(store)
    for statement in (
        "UPDATE tasks SET card = '{}'",
        "UPDATE tasks SET buyer = 'buyer:eve'",
        "UPDATE tasks SET created_ms = 2",
        "DELETE FROM tasks",
    ):
        with pytest.raises(Conflict, match="never changed"), store.begin() as unit:
            unit._connection.execute(text(statement))
    with store.begin() as unit:
        unit._connection.execute(text("UPDATE tasks SET round = 3"))


def test_what_is_erased_leaves_an_sqlite_file(tmp_path) -> None:
    file = tmp_path / "market.db"
    with SqlStore(f"sqlite:///{file}") as store:
        with_task(store)
        with store.begin() as unit:
            unit.put_reply(dataclasses.replace(a_reply(ANN), salt="pepper" * 9))
    assert b"pepper" * 9 in file.read_bytes()
    with SqlStore(f"sqlite:///{file}") as store, store.begin() as unit:
        unit.erase(TASK, ANN)
    assert b"pepper" not in file.read_bytes()
