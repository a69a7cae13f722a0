"""Many at once: nobody's write is lost, nothing is done twice, nobody waits for ever."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from fedbourse.errors import Conflict, InvalidTransfer, NotFound, Unreachable
from fedbourse.ledger import Transfer
from fedbourse.market.parties import EnrolledDevice, Enrolment
from fedbourse.market.records import Response
from fedbourse.storage import SqlStore
from storage.records import (
    ACME,
    ANN,
    BOB,
    TASK,
    a_reply,
    check_books,
    deposit,
    some_events,
    with_task,
)


def all_at_once(count: int, work) -> list:
    """Run work(0), work(1), ... from as many threads, started together."""
    barrier = threading.Barrier(count)

    def one(number: int):
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_a_settlement_waits_for_plans_in_flight(store: SqlStore) -> None:
    with_task(store)
    holding, release = threading.Event(), threading.Event()

    def plan() -> None:
        with store.begin() as tx:
            tx.task(TASK, lock="share")
            tx.put_reply(a_reply(ANN))
            holding.set()
            release.wait(20)

    def settle() -> int:
        with store.begin() as tx:
            tx.task(TASK, lock="change")
            return tx.count_replies(TASK, 0)

    with ThreadPoolExecutor(2) as pool:
        planning = pool.submit(plan)
        assert holding.wait(20)
        settling = pool.submit(settle)
        # Time enough to go wrong: without the lock it would count no plan.
        threading.Event().wait(0.3)
        release.set()
        planning.result(20)
        assert settling.result(20) == 1


def test_plans_do_not_wait_for_each_other_on_postgresql(postgresql) -> None:
    with (
        postgresql.database(template="fedbourse_template") as url,
        SqlStore(url, wait_s=10) as store,
    ):
        with_task(store)
        inside = threading.Barrier(4)

        def plan(number: int) -> None:
            with store.begin() as tx:
                tx.task(TASK, lock="share")
                tx.put_reply(a_reply(f"owner:{number}"))
                inside.wait(10)

        all_at_once(4, plan)
        with store.read() as tx:
            assert tx.count_replies(TASK, 0) == 4


def test_twenty_repeats_of_one_write_have_one_effect(store: SqlStore) -> None:
    def write(number: int) -> Response:
        with store.begin() as tx:
            kept = tx.claim(ACME, "key", "f", expires_ms=1)
            if kept is not None:
                return kept
            tx.post([Transfer(f"deposit {number}", "outside", ACME, 10)], at_ms=1)
            response = Response("f", 201, f"by {number}")
            tx.keep_response(ACME, "key", response)
            return response

    responses = all_at_once(20, write)
    assert len(set(responses)) == 1
    assert check_books(store) == {ACME: 10, "outside": -10}


def test_a_claim_that_failed_leaves_the_key_free(store: SqlStore) -> None:
    def write(number: int) -> bool:
        try:
            with store.begin() as tx:
                if tx.claim(ACME, "key", "f", expires_ms=1) is not None:
                    return False
                raise ZeroDivisionError
        except ZeroDivisionError:
            return True

    assert all(all_at_once(6, write))


def test_posts_in_opposite_orders_do_not_block_each_other(store: SqlStore) -> None:
    names = [f"owner:{n:02}" for n in range(30)]
    for name in names:
        deposit(store, name, 1000)

    def work(number: int) -> None:
        order = names if number % 2 else names[::-1]
        for step in range(6):
            pairs = pairwise(order)
            with store.begin() as tx:
                tx.post([Transfer(f"{number}.{step}.{a}", a, b, 1) for a, b in pairs], at_ms=1)

    all_at_once(6, work)
    held = check_books(store)
    assert sum(held[name] for name in names) == 30_000


def test_new_accounts_opened_in_opposite_orders_do_not_block_each_other(store: SqlStore) -> None:
    for number in range(2):
        deposit(store, f"buyer:{number}", 10_000)
    step_begins = threading.Barrier(2)

    def work(number: int) -> None:
        for step in range(4):
            names = [f"owner:{step}.{n:04}" for n in range(1000)]
            order = names if number else names[::-1]
            step_begins.wait(60)
            with store.begin() as tx:
                tx.post(
                    [Transfer(f"{number}.{name}", f"buyer:{number}", name, 1) for name in order],
                    at_ms=1,
                )

    all_at_once(2, work)
    assert set(check_books(store).values()) == {6000, 2, -20_000}


def test_the_last_credit_is_spent_once(store: SqlStore) -> None:
    deposit(store, ACME, 10)

    def spend(number: int) -> bool:
        try:
            with store.begin() as tx:
                tx.post([Transfer(f"s{number}", ACME, f"owner:{number}", 10)], at_ms=1)
        except InvalidTransfer:
            return False
        return True

    assert sum(all_at_once(8, spend)) == 1
    assert check_books(store)[ACME] == 0


def test_one_id_between_different_accounts_is_posted_once(store: SqlStore) -> None:
    def post(number: int) -> bool:
        try:
            with store.begin() as tx:
                tx.post([Transfer("same", "outside", f"owner:{number}", 1)], at_ms=1)
        except InvalidTransfer:
            return False
        return True

    assert sum(all_at_once(8, post)) == 1
    assert check_books(store)["outside"] == -1


def test_one_sequence_number_is_taken_once(store: SqlStore) -> None:
    with_task(store)
    (event,) = some_events(1)

    def append(number: int) -> bool:
        try:
            with store.begin() as tx:
                tx.append_event(event)
        except Conflict:
            return False
        return True

    assert sum(all_at_once(8, append)) == 1


def test_a_one_time_token_and_a_nonce_are_used_once(store: SqlStore) -> None:
    with store.begin() as tx:
        tx.add_enrolment(Enrolment("h", ANN, expires_ms=10))

    def use(number: int) -> tuple[bool, bool]:
        with store.begin() as tx:
            fresh = tx.remember_nonce("d", "n", expires_ms=9)
            return fresh, tx.use_enrolment("h", at_ms=1) == ANN

    used = all_at_once(8, use)
    assert sum(nonce for nonce, _ in used) == sum(token for _, token in used) == 1


def test_devices_enrolled_at_once_leave_one_live(store: SqlStore) -> None:
    def enrol(number: int) -> None:
        try:
            with store.begin() as tx:
                tx.put_device(EnrolledDevice(f"d{number}", ANN, "key", number))
        except (Conflict, Unreachable):
            pass  # somebody else was faster: asking again is allowed

    all_at_once(8, enrol)
    with store.read() as tx:
        devices = [tx.device(f"d{number}") for number in range(8)]
    assert sum(device is not None and device.retired_ms is None for device in devices) == 1


def test_two_stores_share_a_database(store: SqlStore, database_url: str) -> None:
    deposit(store, ACME, 100)
    with SqlStore(database_url) as other:

        def pay(number: int) -> None:
            with (store if number % 2 else other).begin() as tx:
                tx.post([Transfer(f"p{number}", ACME, BOB, 1)], at_ms=1)

        all_at_once(10, pay)
        assert check_books(other)[BOB] == 10


def test_waiting_for_somebody_else_ends_with_a_sentence(store: SqlStore, database_url: str) -> None:
    with_task(store)
    with SqlStore(database_url, wait_s=0.2) as impatient, store.begin() as tx:
        tx.task(TASK, lock="change")
        with pytest.raises(Unreachable, match="locked"), impatient.begin() as other:
            other.task(TASK, lock="change")


def test_too_few_connections_end_with_a_sentence(database_url: str) -> None:
    with (
        SqlStore(database_url, wait_s=0.1, connections=1) as store,
        store.read(),
        pytest.raises(Unreachable, match="every connection"),
        store.read(),
    ):
        pass


def test_what_follows_a_commit_is_done_once_it_is_seen_by_others(store: SqlStore) -> None:
    seen = []

    def look() -> None:
        with store.begin() as tx:
            seen.append(tx.balance(ACME))

    with store.begin() as tx:
        tx.after_commit(look)
        tx.post([Transfer("in", "outside", ACME, 5)], at_ms=1)
        assert seen == []
    assert seen == [5]
    with pytest.raises(NotFound), store.begin() as tx:
        [tx.after_commit(look), tx.task("none")]
    assert seen == [5]
