"""What other rewards would buy, and what that tells of owners' values."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedbourse.errors import Conflict, InvalidInput, NotAllowed, NotFound
from fedbourse.game import ACCURACY_MODELS, Accuracy, best_reward, equilibrium
from fedbourse.market import what_if
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.offers import training_of
from fedbourse.market.what_if import rewards_in
from fedbourse.tasks.card import Assumptions
from fedbourse.testing.trading import AUDITOR, BUYER, OPERATOR, Trading, caller, card

REWARDS = [0.5, 1.0, 20.0]
NEAR = [1.0 + n / 97 for n in range(12)]
"""Values so near each other that more than five owners take part."""


@pytest.fixture
def trading(store):
    trading = Trading(store)
    trading.fund(10**9)
    return trading


def interested(trading, values, *, withheld=0, task=None):
    """An open task whose first owners tell their values, and whose last do not."""
    owners = trading.owners(*values)
    task = task or trading.opened()
    for n, owner in enumerate(owners):
        told = owner.value if n < len(owners) - withheld else None
        trading.time_ms += 1
        said = {"value": told, "previous": task.card.digest}
        trading.do(owner_commands.register_interest, owner.caller, task.id, **said)
    return task, owners


def seen(trading, task, who=BUYER, **options):
    return trading.shown(what_if.of_task, who, task.id, **({"rewards": REWARDS} | options))


def near(found, exact, digits):
    return found == pytest.approx(exact, rel=0.6 * 10.0 ** (1 - digits))


def test_it_rests_on_the_values_told_and_each_number_is_the_games_rounded(trading) -> None:
    task, _ = interested(trading, NEAR[:10], withheld=0)
    found = seen(trading, task)
    said, training = task.card.assumed, training_of(task.card)
    assert found["why"] == "the values that 10 of 10 owners told"
    assert (found["basis"], found["owners"], found["rewards"]) == ("reported", 10, REWARDS)
    for reward, total in zip(REWARDS, found["total_budgets"], strict=True):
        game = equilibrium(NEAR[:10], reward=reward)
        assert game.count == found["participants"] >= 5
        assert near(total, game.total_budget, 3)
    assert [each["model"] for each in found["models"]] == list(ACCURACY_MODELS)
    for each in found["models"]:
        model = Accuracy(each["model"], said.chance, said.ceiling, said.noise)
        offer = best_reward(NEAR[:10], training, accuracy_value=said.accuracy_value, accuracy=model)
        assert near(each["best_reward"], offer.reward, 3)
        assert each["best_utility"] == pytest.approx(offer.utility, abs=0.02 * said.accuracy_value)
        for reward, accuracy, utility in zip(
            REWARDS, each["accuracy"], each["utility"], strict=True
        ):
            game = equilibrium(NEAR[:10], reward=reward)
            precisions = training.precisions(game.budgets, game.participants)
            assert accuracy == round(model.of(precisions, 10), 4)
            assert utility == said.accuracy_value * accuracy - reward


@pytest.mark.parametrize("told", range(5))
def test_fewer_than_five_values_show_nothing_of_themselves(trading, told) -> None:
    updates = set()
    for factor in (1.0, 1.001):
        values = [factor * value for value in NEAR[:told]] + [9.0] * (7 - told)
        task, _ = interested(trading, values, withheld=7 - told)
        found = seen(trading, task)
        assert found.pop("task") == task.id
        assert found["basis"] == "assumed"
        assert found["why"].endswith(f"{told} of 7 told theirs, 5 are needed")
        updates.add(json.dumps(found))
    assert len(updates) == 1


def test_fewer_than_five_who_take_part_show_nothing_of_themselves(trading) -> None:
    found = [
        seen(trading, interested(trading, [1.0, cheap, *[90.0 + n for n in range(8)]])[0])
        for cheap in (1.1, 1.2)
    ]
    assert all("fewer than 5 would take part" in each["why"] for each in found)
    assert found[0]["models"] == found[1]["models"]
    assert found[0]["total_budgets"] == found[1]["total_budgets"]


def test_new_values_count_five_at_a_time_so_that_none_shows_by_its_coming(trading) -> None:
    updates = []
    for count in range(5, 13):
        task, _ = interested(trading, NEAR[:count])
        found = seen(trading, task)
        updates.append((found["owners"], json.dumps([found["models"], found["total_budgets"]])))
    assert [owners for owners, _ in updates] == [5] * 5 + [10] * 3
    assert len({text for _, text in updates[:5]}) == 1
    assert len({text for _, text in updates[5:]}) == 1


def test_an_answer_with_every_new_value_would_be_seen(trading, monkeypatch) -> None:
    before = seen(trading, interested(trading, NEAR[:5])[0])
    monkeypatch.setattr(what_if, "GROUP", 1)
    after = seen(trading, interested(trading, NEAR[:6])[0])
    assert before["total_budgets"] != after["total_budgets"]


def test_numbers_that_rest_on_values_have_three_digits_and_say_no_more(trading) -> None:
    rewards = [1.0 + n / 199 for n in range(200)]
    task = interested(trading, NEAR[:10])[0]
    found, accuracy_value = seen(trading, task, rewards=rewards), task.card.assumed.accuracy_value
    each_credit = {
        float(f"{p / r:.10g}") for p, r in zip(found["total_budgets"], rewards, strict=True)
    }
    (one,) = each_credit
    assert one == float(f"{one:.3g}")
    for model in found["models"]:
        assert all(a == round(a, 4) for a in model["accuracy"])
        assert model["best_reward"] == float(f"{model['best_reward']:.3g}")
        best = (model["best_utility"] + model["best_reward"]) / accuracy_value
        assert best == pytest.approx(round(best, 4), abs=1e-12)


def test_of_values_told_at_the_same_moment_the_first_by_name_count(trading) -> None:
    owners, task = trading.owners(*NEAR[:7]), trading.opened()
    for owner in owners:
        said = {"value": owner.value, "previous": task.card.digest}
        trading.do(owner_commands.register_interest, owner.caller, task.id, **said)
    found = seen(trading, task)
    first = [owner.value for owner in sorted(owners, key=lambda owner: owner.name)[:5]]
    assert found["owners"] == 5
    assert near(found["total_budgets"][1], equilibrium(first, reward=1.0).total_budget, 3)


def test_a_draft_rests_on_what_its_card_assumes_for_as_many_owners_as_asked(trading) -> None:
    task = trading.do(buyer_commands.create, BUYER, card(min_participants=4))
    assert seen(trading, task)["owners"] == 4
    found = seen(trading, task, owners=1000)
    spread = 1 + 4 * (np.arange(1000) + 0.5) / 1000
    assert found["basis"] == "assumed"
    assert found["total_budgets"] == pytest.approx(
        [equilibrium(spread, reward=reward).total_budget for reward in REWARDS], rel=1e-12
    )
    assert "1000 owners with values spread evenly over 1 to 5: as asked for" in found["why"]


def test_the_number_of_owners_that_is_asked_for_goes_before_what_was_told(trading) -> None:
    found = seen(trading, interested(trading, NEAR)[0], owners=50)
    assert (found["basis"], found["owners"]) == ("assumed", 50)


def test_the_buyer_operator_and_auditors_may_ask_and_nobody_else(trading) -> None:
    task, owners = interested(trading, NEAR)
    assert seen(trading, task) == seen(trading, task, OPERATOR) == seen(trading, task, AUDITOR)
    for who in (owners[0].caller, caller("buyer:other"), caller("owner:stranger")):
        with pytest.raises(NotAllowed):
            seen(trading, task, who)
    draft = trading.do(buyer_commands.create, BUYER, card())
    with pytest.raises(NotFound):
        seen(trading, draft, owners[0].caller)


def test_it_is_over_once_the_task_is_settled(trading) -> None:
    owners = trading.owners(*NEAR)
    task = trading.announced(owners, report=True)
    assert seen(trading, task)["basis"] == "reported"
    trading.play(owners, task)
    with pytest.raises(Conflict, match="draft, open or announced; it is settled"):
        seen(trading, task)


def test_a_card_without_assumptions_cannot_say_what_accuracy_is_worth(trading) -> None:
    task = trading.do(buyer_commands.create, BUYER, card(assumptions=None))
    with pytest.raises(InvalidInput, match="states no assumptions"):
        seen(trading, task)


def test_a_value_that_is_said_anew_counts_as_new(trading) -> None:
    task, owners = interested(trading, NEAR[:5])
    trading.time_ms += 1
    said = {"value": 1.5, "previous": task.card.digest}
    (extra,) = [owner for owner in trading.owners(*[9.0] * 6) if owner.name == "owner:000005"]
    trading.do(owner_commands.register_interest, extra.caller, task.id, **said)
    with trading.store.read() as tx:
        assert tx.count_reported(task.id) == 6
        assert tx.report_number(task.id, 6)[1] == extra.name
    trading.time_ms += 1
    trading.do(owner_commands.register_interest, owners[0].caller, task.id, **said)
    with trading.store.read() as tx:
        assert tx.report_number(task.id, 6)[1] == owners[0].name


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "numbers separated by commas, such as 1,2,5; found ''"),
        ("1,x", "found '1,x'"),
        ("1,,2", "found '1,,2'"),
        ("0", "rewards must be"),
        ("-1", "rewards must be"),
        ("nan", "rewards must be"),
        ("inf", "rewards must be"),
        ("1e300", "rewards must be"),
        (",".join(["1"] * 201), "at most 200 numbers; found 201"),
    ],
)
def test_rewards_that_are_none_are_refused_in_one_sentence(text, sentence) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        rewards_in(text)


def test_assumptions_shape_the_answer(trading) -> None:
    cheap = trading.do(
        buyer_commands.create, BUYER, card(assumptions=Assumptions(accuracy_value=20.0, noise=0.1))
    )
    dear = trading.do(buyer_commands.create, BUYER, card())
    better, worse = seen(trading, cheap, owners=30), seen(trading, dear, owners=30)
    for one, other in zip(better["models"], worse["models"], strict=True):
        assert min(one["accuracy"]) > max(other["accuracy"][:1])
