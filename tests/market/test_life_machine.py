"""Any life of any tasks, on a real database, against a model of money and states in plain Python.

The planted faults prove that the machine can fail.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase

from examples import at_most
from fedbourse.errors import FedbourseError
from market.life_faults import FAULTS
from market.life_invariants import postgresql_stores, sqlite_stores
from market.life_machine import run_life, run_same_lives


@pytest.mark.slow
def test_any_life_keeps_the_books_and_the_log(kind, request) -> None:
    if kind == "sqlite":
        stores = sqlite_stores(request.getfixturevalue("sqlite_template"))
    else:
        stores = postgresql_stores(request.getfixturevalue("postgresql"))
    # To shrink a life takes Hypothesis minutes; the seed that it prints is enough to see it again.
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    run_life(stores, at_most(12 if kind == "sqlite" else 8), phases=phases)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_planted_faults_are_caught(fault, sqlite_template, monkeypatch) -> None:
    fault(monkeypatch)
    # Where the market's rules have changed another life may show it: all are played until one does.
    lives = sorted(range(200), key=lambda number: (number != FAULTS[fault], number))
    with pytest.raises((AssertionError, FedbourseError, pytest.fail.Exception)):
        run_same_lives(sqlite_stores(sqlite_template), lives, steps=8)


@pytest.mark.slow
def test_without_a_fault_the_same_lives_are_whole(sqlite_template) -> None:
    lives = sorted({*range(5), *FAULTS.values()})
    run_same_lives(sqlite_stores(sqlite_template), lives, steps=8)
