"""What is computed at length is bounded: for each caller, for strangers, and for all."""

from __future__ import annotations

import ast
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import fedbourse
from fedbourse.errors import TooManyRequests, Unreachable
from fedbourse.web.heavy import HeavyWork
from fedbourse.web.limits import Buckets

SOURCE = Path(fedbourse.__file__).parent


def work(per_s=1e9, burst=10**9):
    buckets = Buckets(per_s=per_s, burst=burst, now_s=time.monotonic)
    return HeavyWork(buckets, at_once=3, strangers_at_once=1)


def test_one_caller_has_one_thing_computed_at_a_time():
    heavy = work()
    with heavy.turn("buyer:acme", known=True):
        with pytest.raises(TooManyRequests, match="buyer:acme has something computed already"):
            heavy.turn("buyer:acme", known=True).__enter__()
        with heavy.turn("buyer:other", known=True):
            pass
    with heavy.turn("buyer:acme", known=True):
        pass


def test_a_turn_that_fails_is_over():
    heavy = work()
    with pytest.raises(ZeroDivisionError), heavy.turn("buyer:acme", known=True):
        raise ZeroDivisionError
    with heavy.turn("buyer:acme", known=True):
        pass


def test_strangers_leave_turns_to_those_who_are_known():
    heavy = work()
    with ExitStack() as turns:
        turns.enter_context(heavy.turn("192.0.2.1", known=False))
        with pytest.raises(Unreachable, match="computes as much as it can"):
            heavy.turn("192.0.2.2", known=False).__enter__()
        for name in ("buyer:a", "buyer:b"):
            turns.enter_context(heavy.turn(name, known=True))
        with pytest.raises(Unreachable, match="computes as much as it can"):
            heavy.turn("buyer:c", known=True).__enter__()


def test_nobody_has_much_computed_in_a_short_time():
    heavy = work(per_s=1e-3, burst=2)
    for _ in range(2):
        with heavy.turn("buyer:acme", known=True):
            pass
    with pytest.raises(TooManyRequests, match="much computed at once; wait a second"):
        heavy.turn("buyer:acme", known=True).__enter__()


AUTHENTICATES = {"session.py", "sign_in.py", "visits.py"}
READERS = [
    *(path for path in (SOURCE / "dashboard").glob("*.py") if path.name not in AUTHENTICATES),
    *(SOURCE / "web").glob("*_routes.py"),
]


@pytest.mark.parametrize("path", READERS, ids=lambda path: path.name)
def test_pages_and_routes_ask_views_and_hand_transactions_on(path):
    """A transaction is for commands: nothing reads out of it but a view."""
    read = [
        f"{path.name}:{node.lineno} unit.{node.attr}"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "unit"
    ]
    assert not read
