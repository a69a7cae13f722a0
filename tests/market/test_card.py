"""A task card is checked once, and any change of it changes its hash."""

import dataclasses
import json

import pytest

from fedbourse.errors import InvalidInput
from fedbourse.tasks.card import Assumptions, Deadlines, TaskCard
from fedbourse.tasks.evidence import EvidenceSpec
from fedbourse.tasks.layout import Column, Layout

GOOD = {
    "goal": "is it late?",
    "data": "flights",
    "scaling": "abc",
    "loss": "logistic",
    "query": "gradient",
    "compensation": "proportional",
    "reward": "best",
    "model": "logistic",
    "features": 10,
    "classes": 2,
    "dimension": 10,
    "step_size": 1.0,
    "rounds": 5,
    "samples": 20,
    "clip": 1.0,
    "aggregation": "equal",
    "vesting": "by-round",
    "unearned": "fund",
    "cost": "convex",
    "start_seed": 0,
    "max_reward": 5.0,
    "max_rho": 1.0,
    "min_budget": 0.0,
    "min_total_budget": 0.0,
    "min_participants": 2,
    "assumptions": Assumptions(accuracy_value=20.0),
    "deadlines": Deadlines(),
    "validation": "",
    "layout": None,
    "evidence": None,
    "version": 2,
}

LAYOUT = Layout(tuple(Column(f"x{i}") for i in range(9)), "late", ("no", "yes"))


def test_any_change_changes_the_hash() -> None:
    changes = {
        "goal": "x",
        "data": "x",
        "scaling": "x",
        "loss": "x",
        "reward": 2.0,
        "model": "softmax",
        "vesting": "upfront",
        "unearned": "share",
        "cost": "linear",
        "start_seed": 1,
        "max_reward": 6.0,
        "max_rho": 2.0,
        "min_budget": 0.1,
        "min_total_budget": 0.1,
        "min_participants": 3,
        "assumptions": Assumptions(accuracy_value=21.0),
        "deadlines": Deadlines(round_s=1.0),
        "evidence": EvidenceSpec(reference="0" * 64, records=10),
        "validation": "x",
        "step_size": 2.0,
        "rounds": 6,
        "samples": 21,
        "clip": 2.0,
        "aggregation": "precision",
        "layout": LAYOUT,
    }
    together = {"model": {"dimension": 20}}  # what must change with an item
    cards = [
        TaskCard(**GOOD),
        *(TaskCard(**(GOOD | {k: v} | together.get(k, {}))) for k, v in changes.items()),
        TaskCard(**(GOOD | {"features": 11, "dimension": 11})),
    ]
    assert len({card.digest for card in cards}) == len(cards)
    assert TaskCard(**GOOD).digest == cards[0].digest
    assert {f.name for f in dataclasses.fields(TaskCard)} == set(GOOD)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"goal": " "}, "goal must be a text"),
        ({"query": "local-steps"}, "query must be one of gradient"),
        (
            {"compensation": "equal"},
            "compensation must be one of proportional, clock; found 'equal'",
        ),
        (
            {"compensation": "optimal"},
            "compensation must be one of proportional, clock; found 'optimal', which is for "
            "studies: the market cannot run it",
        ),
        ({"vesting": "later"}, "vesting must be one of by-round, upfront; found 'later'"),
        ({"unearned": "burn"}, "unearned must be one of fund, refund, share; found 'burn'"),
        ({"cost": "concave"}, "cost must be one of convex, linear; found 'concave'"),
        ({"min_budget": -1}, "min_budget must be"),
        ({"min_budget": 1.1}, "min_budget must be a finite number of at least 0 and of at most 1"),
        ({"min_total_budget": -1}, "min_total_budget must be"),
        ({"aggregation": "pay"}, "aggregation must be one of equal, precision"),
        ({"reward": 0}, "reward must be a finite number of at least 1e-06"),
        ({"reward": 9e-7}, "reward must be a finite number of at least 1e-06"),
        ({"max_reward": 9e-7}, "max_reward must be a finite number of at least 1e-06"),
        ({"reward": "most"}, "reward must be a number"),
        ({"rounds": 0}, "rounds must be"),
        ({"clip": -1}, "clip must be"),
        ({"clip": 0.99e-6}, "clip must be a finite number of at least 1e-06 and of at most"),
        ({"clip": 1.01e6}, "clip must be"),
        ({"dimension": 11}, "a logistic of 10 features and 2 classes has dimension 10"),
        ({"assumptions": None}, "a reward of 'best' needs the card's assumptions and a max_reward"),
        ({"max_reward": None}, "needs the card's assumptions and a max_reward"),
        ({"min_participants": 1}, "min_participants must be"),
        ({"layout": Layout((Column("x"),), "late")}, "makes 2 features; the card says 10"),
        ({"layout": dataclasses.replace(LAYOUT, classes=("a", "b", "c"))}, "names 3 classes"),
        ({"layout": {}}, "a card's layout must be an object"),
        ({"version": 1}, "version must be 2; found 1"),
        ({"goal": "x" * 2001}, "at most 2000 characters; found 2001"),
    ],
)
def test_wrong_items_are_refused(wrong, sentence) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        TaskCard(**(GOOD | wrong))


@pytest.mark.parametrize("bad", ["\0", "\x01", "\x0b", "\x1f", "\ud800"])
@pytest.mark.parametrize("name", ["goal", "data", "scaling", "loss", "validation", "model"])
def test_no_text_holds_what_clients_cannot_read(name, bad) -> None:
    with pytest.raises(InvalidInput, match=f"a card's {name} must hold no control characters"):
        TaskCard(**(GOOD | {name: f"some {bad} text"}))


def test_lines_and_tabs_and_every_script_are_texts() -> None:
    text = "one\r\n\ttwo \N{GRINNING FACE} \N{CJK UNIFIED IDEOGRAPH-4E00} \x85"
    assert TaskCard(**(GOOD | {"goal": text})).goal == text


def test_a_card_is_what_its_document_says() -> None:
    card = TaskCard(**(GOOD | {"layout": LAYOUT}))
    assert TaskCard.of(json.loads(json.dumps(card.document))) == card
    assert TaskCard.of(json.loads(json.dumps(card.document))).digest == card.digest


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"goals": "x"}, "a card has no item 'goals'; it has data, model"),
        ({}, "a card needs data, model, features"),
        ({**GOOD, "payout": "vested"}, "a card has no item 'payout'"),
        ({**GOOD, "deadlines": {"tick": 1}}, "a card's deadlines has no item 'tick'"),
        ({**GOOD, "deadlines": []}, "deadlines must be"),
        ({**GOOD, "assumptions": 3}, "assumptions must be"),
        ({**GOOD, "dimension": "10"}, "dimension must be a number"),
        ({**GOOD, "max_rho": None}, "max_rho must be a number"),
        ({**GOOD, "aggregation": []}, "aggregation must be one of"),
        ({**GOOD, "model": 3}, "model must be a text"),
        ([], "a card must be an object"),
    ],
)
def test_documents_that_are_no_card_get_one_sentence(document, sentence) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        TaskCard.of(document)


def test_a_card_reserves_its_reward_or_the_most_that_it_may_be() -> None:
    assert TaskCard(**GOOD).reserve == GOOD["max_reward"]
    assert TaskCard(**(GOOD | {"reward": 2.0})).reserve == 2.0


def test_there_may_be_no_time_to_review_and_must_be_time_for_all_else() -> None:
    assert Deadlines(review_s=0).review_s == 0
    for name in ("interest_s", "tick_s", "plans_s", "terms_s", "round_s"):
        with pytest.raises(InvalidInput, match=f"{name} must be"):
            Deadlines(**{name: 0})
