"""Reading a column of all owners, chunk by chunk, on both databases."""

from __future__ import annotations

import dataclasses
import itertools
from contextlib import suppress

import pytest

from fedbourse.errors import Conflict
from fedbourse.market.records import Interest
from storage.records import TASK, a_line, a_reply, a_task, an_exit, with_task

OTHER = "0" * 23 + "2"


def named(count):
    return [f"owner:{n:05d}" for n in range(count)]


@pytest.mark.parametrize("at_once", [1, 3, 10, 11, 100])
def test_chunks_have_their_size_and_owners_their_order(store, at_once) -> None:
    with_task(store)
    names = named(10)
    with store.begin() as tx:
        tx.add_task(a_task(OTHER))
        for n, name in reversed(list(enumerate(names))):
            tx.put_interest(Interest(TASK, name, None if n % 3 else n + 0.1, "", f"l{n}", n))
            tx.put_interest(Interest(OTHER, name, 9.0, "", "", n))
    with store.read() as tx:
        chunks = list(tx.columns("interests", TASK, "owner", "value", "leaf", at_once=at_once))
        assert list(tx.columns("allocations", TASK, "owner")) == []
        assert tx.count_reported(TASK) == 4
    sizes = [len(owners) for owners, _, _ in chunks]
    assert sizes[:-1] == [at_once] * (len(sizes) - 1)
    rows = [row for chunk in chunks for row in zip(*chunk, strict=True)]
    assert rows == [(name, None if n % 3 else n + 0.1, f"l{n}") for n, name in enumerate(names)]


@pytest.mark.parametrize("at_once", [1, 2, 5, 100])
def test_replies_to_a_tick_and_lines_are_read_alike(store, at_once) -> None:
    with_task(store)
    with store.begin() as tx:
        tx.add_task(a_task(OTHER))
        for n, name in enumerate(named(5)):
            for tick in range(2):
                tx.put_reply(a_reply(name, budget=(n + tick) / 7, tick=tick))
            tx.put_reply(a_reply(name, budget=9.0, task=OTHER))
        tx.add_exit(an_exit("owner:00003"))
        tx.add_allocations(
            a_line(name, position=n, budget=n / 7) for n, name in enumerate(named(5))
        )
    with store.read() as tx:
        for tick in range(2):
            chunks = list(tx.replies_in(TASK, tick, "owner", "budget", at_once=at_once))
            rows = [row for chunk in chunks for row in zip(*chunk, strict=True)]
            # Who is out is left out, at every tick.
            expected = [(f"owner:{n:05d}", (n + tick) / 7) for n in (0, 1, 2, 4)]
            assert rows == expected
            assert all(len(owners) == at_once for owners, _ in chunks[:-1])
        assert list(tx.replies_in(TASK, 2, "budget")) == []
        assert list(tx.columns("allocations", TASK, "position", "payment")) == [
            ((0, 1, 2, 3, 4), (7,) * 5)
        ]


def test_lines_can_be_written_while_replies_are_read(store) -> None:
    with_task(store)
    names = named(25_000)  # more than one COPY's
    with store.begin() as tx:
        for name in names[:2]:
            tx.put_reply(a_reply(name))
    allocations = [a_line(name, position=n) for n, name in enumerate(names)]

    def made(tx):
        chunks = tx.replies_in(TASK, 0, "owner", at_once=1)
        yield from allocations[:12_000]
        assert next(chunks) == ((names[0],),)
        yield from allocations[12_000:24_000]
        assert next(chunks) == ((names[1],),)
        yield from allocations[24_000:]

    with store.begin() as tx:
        tx.add_allocations(made(tx))
    with store.read() as tx:
        assert tx.allocations(TASK) == allocations


def test_lines_of_which_a_later_one_fails_leave_nothing(store) -> None:
    with_task(store)
    allocations = [a_line(name, position=n) for n, name in enumerate(named(15_000))]
    twice = dataclasses.replace(allocations[3], position=15_000)
    with pytest.raises(Conflict), store.begin() as tx:
        tx.add_allocations([*allocations, twice])
    with store.read() as tx:
        assert tx.allocations(TASK) == []


def test_a_reading_that_is_given_up_does_not_disturb_its_transaction(store) -> None:
    with_task(store)
    with store.begin() as tx:
        for name in named(9):
            tx.put_reply(a_reply(name))
    with store.begin() as tx:
        chunks = tx.replies_in(TASK, 0, "owner", at_once=2)
        with suppress(Conflict), tx.savepoint():
            inside = tx.replies_in(TASK, 0, "owner", at_once=2)
            assert next(inside) == next(chunks)
            tx.put_reply(a_reply("owner:lost"))
            raise Conflict("given up")
        tx.put_reply(a_reply("owner:kept"))
        del inside, chunks
        assert tx.count_replies(TASK, 0) == 10
    with store.read() as tx:
        owners = itertools.chain.from_iterable(o for (o,) in tx.replies_in(TASK, 0, "owner"))
        assert list(owners) == [*named(9), "owner:kept"]


def test_reports_are_numbered_as_they_came_and_by_name_within_a_moment(store) -> None:
    with_task(store)
    came = [("owner:c", 2.0, 5), ("owner:b", None, 1), ("owner:a", 1.0, 5), ("owner:d", 3.0, 4)]
    with store.begin() as tx:
        for owner, value, at_ms in came:
            tx.put_interest(Interest(TASK, owner, value, "", "", at_ms))
    with store.read() as tx:
        reports = [tx.report_number(TASK, number) for number in range(1, 4)]
    assert reports == [(4, "owner:d"), (5, "owner:a"), (5, "owner:c")]
