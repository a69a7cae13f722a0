"""However often terms are signed, given up and asked about: one budget alone is ever spent."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device.test_deals import DEAL, TERMS
from fedbourse.device.reservations import Reservations
from fedbourse.errors import Refused
from fedbourse.privacy.filter import Filter, RoundRequest
from fedbourse.privacy.memory_store import MemoryStore
from fedbourse.testing.device.malicious_market import CARD

BUDGETS = (0.5, 0.4, 0.25, 0.6)
ALL_TERMS = [DEAL.privacy(TERMS | {"budget": budget}) for budget in BUDGETS]
CAP = 0.5
terms = st.integers(0, len(BUDGETS) - 1)
steps = st.one_of(
    st.tuples(st.just("reserve"), terms),
    st.tuples(st.just("ask"), terms),
    st.tuples(st.just("free"), st.just(0)),
)


@given(st.lists(steps, max_size=30))
def test_one_budget_is_open_at_most_and_one_alone_is_charged(played) -> None:
    guard = Filter(MemoryStore(), lifetime_cap=CAP)
    reservations = Reservations(DEAL, guard)
    asked = 0
    for step, number in played:
        with suppress(Refused):
            if step == "reserve":
                reservations.reserve(ALL_TERMS[number])
            elif step == "free":
                reservations.free()
            else:
                agreed = ALL_TERMS[number]
                round_request = RoundRequest(
                    agreed.task, agreed.digest, asked % CARD.rounds, "model"
                )
                guard.charge(round_request, cost=0.0)
                asked += 1
        accounts = reservations.accounts()
        charged = [account for account in accounts if account.charged]
        assert sum(not account.closed for account in accounts) <= 1
        assert len(charged) <= 1
        assert reservations.spent <= max((each.terms.exact_rho for each in charged), default=0)


def test_terms_of_other_deals_are_left_alone() -> None:
    guard = Filter(MemoryStore(), lifetime_cap=9.0)
    other = DEAL.privacy(TERMS | {"budget": 0.1})
    elsewhere = type(other)(
        task=f"{DEAL.name}@0@0", rho=0.1, rounds=1, dimension=1, samples=1, clip=1.0
    )
    guard.agree(elsewhere)
    reservations = Reservations(DEAL, guard)
    for each in ALL_TERMS:
        reservations.reserve(each)
    assert [account.terms.rho for account in reservations.accounts()] == list(BUDGETS)
    reservations.free()
    assert [account.terms.task for account in guard.accounts() if not account.closed] == [
        elsewhere.task
    ]


def test_what_does_not_fit_leaves_nothing_reserved() -> None:
    guard = Filter(MemoryStore(), lifetime_cap=CAP)
    reservations = Reservations(DEAL, guard)
    reservations.reserve(ALL_TERMS[0])
    with pytest.raises(Refused) as refused:
        reservations.reserve(ALL_TERMS[3])
    assert refused.value.reason == "over-cap"
    assert [account.closed for account in guard.accounts()] == [True]
