"""A task card is checked once, and any change of it changes its hash."""

import dataclasses

import pytest

from fedbourse.errors import InvalidInput
from fedbourse.market.card import TaskCard

GOOD = {
    "goal": "is it late?",
    "data": "flights",
    "scaling": "abc",
    "loss": "logistic",
    "query": "gradient",
    "compensation": "proportional",
    "reward": "best",
    "model": "logistic",
    "dimension": 10,
    "step_size": 1.0,
    "rounds": 5,
    "samples": 20,
    "clip": 1.0,
    "weights": "equal",
    "payout": "vested",
}


def test_any_change_changes_the_hash() -> None:
    changes = {
        "goal": "x",
        "data": "x",
        "scaling": "x",
        "loss": "x",
        "reward": 2.0,
        "model": "x",
        "dimension": 11,
        "step_size": 2.0,
        "rounds": 6,
        "samples": 21,
        "clip": 2.0,
        "weights": "precision",
    }
    cards = [TaskCard(**GOOD), *(TaskCard(**(GOOD | {k: v})) for k, v in changes.items())]
    assert len({card.digest for card in cards}) == len(cards)
    assert TaskCard(**GOOD).digest == cards[0].digest
    assert {f.name for f in dataclasses.fields(TaskCard)} == set(GOOD)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"goal": " "}, "goal must be said in words"),
        ({"query": "local-steps"}, "query must be one of gradient"),
        ({"compensation": "equal"}, "compensation must be one of proportional; found 'equal'"),
        ({"payout": "later"}, "payout must be one of vested; found 'later'"),
        ({"weights": "pay"}, "weights must be one of equal, precision"),
        ({"reward": 0}, "reward must be a finite number above 0"),
        ({"reward": "most"}, "reward must be a number"),
        ({"rounds": 0}, "rounds must be"),
        ({"clip": -1}, "clip must be"),
    ],
)
def test_wrong_items_are_refused(wrong, sentence) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        TaskCard(**(GOOD | wrong))
