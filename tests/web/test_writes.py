"""A write has one effect however often it is sent, and a refused one has none."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from fedbourse.errors import Conflict, InvalidInput, InvalidTransfer, Unauthenticated
from fedbourse.ledger import OUTSIDE, Transfer
from fedbourse.units import MicroCredits
from fedbourse.web.identity import confirm, identify
from fedbourse.web.writes import carry_out
from web.people import NOW, Phone, asks

BUYER = "buyer:acme"


def request_of(key="key-00001", *, body=b"{}", path="/v1/deposits", query="", method="POST"):
    return asks(method, path, query=query, headers=[("Idempotency-Key", key)], body=body)


class Deposits:
    """A command that leaves money behind each time it is carried out."""

    def __init__(self, amount=5):
        self.times, self.amount = 0, amount
        self._lock = threading.Lock()

    def __call__(self, tx):
        with self._lock:
            self.times += 1
            id = f"d{self.times}"
        tx.post([Transfer(id, OUTSIDE, BUYER, MicroCredits(self.amount))], at_ms=NOW)
        return {"deposited": self.amount}


def write(store, request, command, *, caller=BUYER, confirm=lambda tx: None, status=201):
    return carry_out(
        store,
        request,
        caller=caller,
        confirm=confirm,
        command=command,
        now_ms=NOW,
        status=status,
    )


def balance(store):
    with store.read() as tx:
        return tx.balance(BUYER)


def test_a_repeated_write_is_answered_alike_and_has_one_effect(store):
    command = Deposits()
    first = write(store, request_of(), command)
    again = write(store, request_of(), command)
    assert (first.status, first.body, first.replayed) == (201, '{"deposited":5}', False)
    assert (again.status, again.body, again.replayed) == (201, '{"deposited":5}', True)
    assert command.times == 1
    assert balance(store) == 5


@pytest.mark.parametrize(
    "other",
    [
        request_of(body=b'{"a":1}'),
        request_of(path="/v1/withdrawals"),
        request_of(query="a=1"),
        request_of(method="PUT"),
    ],
)
def test_a_used_key_is_refused_for_anything_else(store, other):
    write(store, request_of(), Deposits())
    with pytest.raises(Conflict, match="key-00001"):
        write(store, other, Deposits())
    assert balance(store) == 5


def test_keys_of_different_callers_do_not_meet(store):
    for number, caller in enumerate((BUYER, "buyer:other", "device:0011223344556677")):
        command = Deposits()
        command.times = number * 10
        assert not write(store, request_of(), command, caller=caller).replayed
    assert balance(store) == 15


def test_a_refused_write_leaves_nothing_and_may_be_tried_again(store):
    def refused(tx):
        Deposits()(tx)
        raise InvalidTransfer("not today")

    for _ in range(2):
        with pytest.raises(InvalidTransfer, match="not today"):
            write(store, request_of(), refused)
    assert balance(store) == 0
    assert not write(store, request_of(), Deposits()).replayed
    assert balance(store) == 5


def test_a_crash_leaves_nothing(store):
    def crashing(tx):
        Deposits()(tx)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write(store, request_of(), crashing)
    assert balance(store) == 0
    assert not write(store, request_of(), Deposits()).replayed


@pytest.mark.parametrize("key", ["", "short", "x" * 129, "with space", "é" * 10, "tab\tinside"])
def test_a_key_that_is_none_is_refused(store, key):
    command = Deposits()
    with pytest.raises(InvalidInput, match="Idempotency-Key"):
        write(store, request_of(key), command)
    with pytest.raises(InvalidInput, match="Idempotency-Key"):
        write(store, replace(request_of(), headers=()), command)
    assert not command.times


def test_two_keys_are_refused(store):
    twice = replace(request_of(), headers=request_of().headers * 2)
    with pytest.raises(InvalidInput, match="once"):
        write(store, twice, Deposits())


def test_a_refused_write_has_used_its_nonce_up(store):
    phone = Phone()
    with store.begin() as tx:
        tx.put_device(phone.device)
    request = phone.sign(request_of())
    with store.read() as tx:
        identity = identify(request, tx, now_ms=NOW)

    def refused(tx):
        raise Conflict("not yet")

    def proof(tx):
        confirm(identity, tx, now_ms=NOW)

    with pytest.raises(Conflict, match="not yet"):
        write(store, request, refused, confirm=proof)
    # Later, when it would pass, somebody who saw it cannot send it again.
    with pytest.raises(Unauthenticated, match="used before"):
        write(store, request, Deposits(), confirm=proof)
    assert balance(store) == 0


def test_a_proof_that_no_longer_holds_stops_the_write(store):
    def withdrawn(tx):
        raise Unauthenticated("this token was revoked")

    command = Deposits()
    with pytest.raises(Unauthenticated):
        write(store, request_of(), command, confirm=withdrawn)
    assert not command.times


def test_twenty_repeats_at_once_have_one_effect(store):
    command, outcomes, faults = Deposits(), [], []
    start = threading.Barrier(20)

    def send():
        start.wait()
        try:
            outcomes.append(write(store, request_of(), command))
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=send) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert len({(outcome.status, outcome.body) for outcome in outcomes}) == 1
    assert [outcome.replayed for outcome in outcomes].count(False) == 1
    assert balance(store) == 5


def test_what_was_answered_under_other_scopes_is_not_shown(store):
    options = {"caller": BUYER, "confirm": lambda tx: None, "now_ms": NOW}
    command = Deposits()
    carry_out(store, request_of(), command=command, scopes={"buyer", "operator"}, **options)
    with pytest.raises(Conflict, match="used before for another request"):
        carry_out(store, request_of(), command=command, scopes={"buyer"}, **options)
    assert command.times == 1
