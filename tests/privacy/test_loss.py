"""The two epsilons that people read: about one record, and about the whole owner."""

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epsilon_units import check_epsilon_units
from fedbourse.errors import InvalidInput
from fedbourse.privacy import DELTA, compose, epsilon, whole_owner
from fedbourse.privacy.loss import EPSILON_HEADS, NOTES, PrivacyLoss, epsilon_text

RHOS = st.floats(1e-9, 1e3)
RECORDS = st.integers(1, 10**6)


@given(st.lists(st.tuples(RHOS, RECORDS), max_size=6))
def test_both_compose_over_tasks_each_with_its_own_records(tasks) -> None:
    loss = PrivacyLoss.composed(tasks)
    assert loss.rho == compose(rho for rho, _ in tasks)
    whole = sum((Fraction(rho) * m**2 for rho, m in tasks), Fraction(0))
    assert Fraction(loss.whole_owner_rho) >= whole
    assert loss.whole_owner_rho == pytest.approx(float(whole))


@given(RHOS, RECORDS)
def test_one_task_is_as_the_mathematics_has_it(rho, samples) -> None:
    loss = PrivacyLoss.of(rho, samples=samples)
    assert loss.epsilon_one_record == epsilon(rho=rho, delta=DELTA)
    whole = whole_owner(rho, samples=samples)
    assert loss.epsilon_whole_owner == pytest.approx(epsilon(rho=whole, delta=DELTA))
    assert loss.epsilon_whole_owner >= loss.epsilon_one_record


def test_owners_with_one_record_have_one_epsilon() -> None:
    loss = PrivacyLoss.of(0.3, samples=1)
    assert loss.epsilon_one_record == loss.epsilon_whole_owner


@given(st.floats(0, 1e300))
def test_people_are_never_promised_more_than_is_proved(value) -> None:
    shown = float(epsilon_text(value).replace(",", ""))
    assert shown >= value
    assert shown <= value * 1.01 + 0.001


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1e-9, "0.001"), (1.5, "1.500"), (99.9991, "100.000"), (100.2, "101"),
     (20959.2, "20,960"), (math.inf, "without bound"), (None, "without bound")],
)  # fmt: skip
def test_epsilons_are_read_by_people(value, text) -> None:
    assert epsilon_text(value) == text


def test_no_tasks_are_no_loss() -> None:
    assert str(PrivacyLoss.composed([])) == "epsilon 0 about one record, 0 about the whole owner"


def test_what_is_beyond_all_numbers_has_no_bound() -> None:
    loss = PrivacyLoss.of(1e300, samples=10**9)
    assert loss.whole_owner_text == "without bound"
    document = json.loads(json.dumps(loss.document("spent_"), allow_nan=False))
    assert document["spent_epsilon_whole_owner"] is None
    assert document["spent_epsilon_one_record"] > 1e299


@pytest.mark.parametrize("task", [(-1.0, 5), (math.nan, 5), (0.1, 0), (0.1, 1.5)])
def test_what_is_no_task_is_refused(task) -> None:
    with pytest.raises(InvalidInput):
        PrivacyLoss.composed([task])


def test_every_text_says_what_it_is_about() -> None:
    check_epsilon_units(str(PrivacyLoss.of(0.1, samples=1000)))
    check_epsilon_units(" ".join((*EPSILON_HEADS, *NOTES.values())))
    with pytest.raises(AssertionError, match=r"epsilon 1\.915 at delta"):
        check_epsilon_units("epsilon 1.915 at delta 1e-5; one record, whole owner")
