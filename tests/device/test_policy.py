"""Nothing is sold below its worth, to whom the owner does not want, or about what it keeps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse.device import Limits
from fedbourse.errors import InvalidInput, Refused
from fedbourse.tasks.card import TaskCard
from fedbourse.testing.device.malicious_market import CARD


def refused(limits: Limits, *, value: float, budget: float, payment: int) -> bool:
    try:
        limits.check_terms(CARD, buyer="buyer:b", value=value, budget=budget, payment=payment)
    except Refused as refusal:
        return refusal.reason == "price"
    return False


@given(st.floats(1e-3, 1e3), st.floats(0, 1e3), st.floats(1e-4, 10), st.integers(0, 10**10))
def test_pay_is_at_least_value_and_least_price(value, least, budget, payment) -> None:
    due = max(value, least) * budget * 1e6  # micro-credits
    if payment >= due * (1 + 1e-9):
        assert not refused(Limits(min_price=least), value=value, budget=budget, payment=payment)
    if payment + 1 < due * (1 - 1e-9):
        assert refused(Limits(min_price=least), value=value, budget=budget, payment=payment)


def test_what_rounding_to_a_micro_credit_took_is_no_reason() -> None:
    assert not refused(Limits(), value=1.0, budget=1 / 3, payment=333_333)
    assert refused(Limits(), value=1.0, budget=1 / 3, payment=333_331)


def test_the_higher_of_value_and_price_counts() -> None:
    assert refused(Limits(min_price=2.0), value=1.0, budget=1.0, payment=1_999_990)
    assert refused(Limits(min_price=0.5), value=1.0, budget=1.0, payment=999_990)
    assert not refused(Limits(min_price=0.5), value=1.0, budget=1.0, payment=1_000_000)


@pytest.mark.parametrize(("item", "text"), [("data", "Health records of a person."),
                                            ("goal", "Predict HEALTH.")])  # fmt: skip
def test_words_that_the_owner_keeps_are_refused(item: str, text: str) -> None:
    card = TaskCard.of({**CARD.document, item: text})
    with pytest.raises(Refused, match="health") as refusal:
        Limits(refused_data=("money", "health")).check_card(card, buyer="buyer:b")
    assert refusal.value.reason == "data"
    Limits(refused_data=("money",)).check_card(card, buyer="buyer:b")


def test_only_named_buyers_are_sold_to() -> None:
    limits = Limits(only_buyers=("buyer:a",))
    limits.check_card(CARD, buyer="buyer:a")
    with pytest.raises(Refused, match="buyer:b") as refusal:
        limits.check_card(CARD, buyer="buyer:b")
    assert refusal.value.reason == "buyer"


def test_pay_before_the_work_needs_the_owners_word() -> None:
    card = TaskCard.of({**CARD.document, "vesting": "upfront"})
    with pytest.raises(Refused, match="accept_upfront") as refusal:
        Limits().check_card(card, buyer="buyer:b")
    assert refusal.value.reason == "upfront"
    Limits(accept_upfront=True).check_card(card, buyer="buyer:b")
    Limits().check_card(CARD, buyer="buyer:b")


@pytest.mark.parametrize(
    "items",
    [{"accept_upfront": 1}, {"accept_upfront": "yes"}, {"accept_evidence": "like-reference"},
     {"accept_evidence": True}, {"max_held_rounds": 0}, {"max_held_rounds": 1.5},
     {"min_price": -1}, {"min_price": float("nan")}, {"min_price": "1"},
     {"refused_data": ("",)}, {"refused_data": (7,)}, {"only_buyers": (" ",)},
     {"refused_data": "health"}, {"only_buyers": "buyer:a"}, {"refused_data": 7}],
    ids=str,
)  # fmt: skip
def test_limits_that_make_no_sense_are_refused(items) -> None:
    with pytest.raises(InvalidInput):
        Limits(**items)


def with_evidence(**evidence) -> TaskCard:
    spec = {"reference": "0" * 64, "records": 100, **evidence}
    return TaskCard.of({**CARD.document, "evidence": spec})


@pytest.mark.parametrize(
    ("setting", "population", "remedy"),
    [
        ("none", "like-reference", "must be any for"),
        ("any-class-mixture", "like-reference", "must be any for"),
        ("none", "any-class-mixture", "must be any-class-mixture or any for"),
    ],
)
def test_evidence_needs_the_owners_word(setting, population, remedy) -> None:
    card = with_evidence(population=population)
    sentence = f"{population}.*accept_evidence is {setting}, and {remedy}.*device.json"
    with pytest.raises(Refused, match=sentence) as refusal:
        Limits(accept_evidence=setting).check_card(card, buyer="buyer:b")
    assert refusal.value.reason == "evidence"
    for accepting in ("any", *([population] if population != "like-reference" else [])):
        Limits(accept_evidence=accepting).check_card(card, buyer="buyer:b")
    Limits().check_card(CARD, buyer="buyer:b")


def test_no_more_rounds_are_held_than_the_owner_allows() -> None:
    everything, two = with_evidence(), with_evidence(hold_rounds=2)
    limits = Limits(accept_evidence="any", max_held_rounds=2)
    sentence = f"pay of up to {CARD.rounds} rounds; max_held_rounds is 2, .* at least {CARD.rounds}"
    with pytest.raises(Refused, match=sentence) as refusal:
        limits.check_card(everything, buyer="buyer:b")
    assert refusal.value.reason == "held"
    limits.check_card(two, buyer="buyer:b")
    Limits(accept_evidence="any").check_card(everything, buyer="buyer:b")
