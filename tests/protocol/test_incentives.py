"""What each rule of pay invites: one sentence each, with numbers that fit together."""

from dataclasses import replace

import pytest

from fedbourse.game import equilibrium
from fedbourse.tasks.card import UNEARNED
from fedbourse.tasks.evidence import EvidenceSpec
from fedbourse.tasks.held_pay import held_pay
from fedbourse.tasks.incentives import (
    OWNERS,
    REFUND_PRICE,
    REFUND_UTILITY,
    REWARD,
    SHARE_UTILITY,
    UNEARNED_INCENTIVES,
    UPFRONT_INCENTIVE,
    incentive,
    incentive_of,
)
from fedbourse.testing.trading import card


def test_every_rule_has_its_sentence_with_its_numbers() -> None:
    assert list(UNEARNED_INCENTIVES) == list(UNEARNED)
    sentences = [*UNEARNED_INCENTIVES.values(), UPFRONT_INCENTIVE]
    assert len(set(sentences)) == 4
    for sentence in sentences:
        assert sentence[0].islower()
        assert not sentence.endswith(".")
    for gain in (REFUND_PRICE, REFUND_UTILITY):
        assert f"{gain.before:g}" in UNEARNED_INCENTIVES["refund"]
        assert f"{gain.after:g}" in UNEARNED_INCENTIVES["refund"]
    assert (
        f"from {SHARE_UTILITY.before:g} to {SHARE_UTILITY.after:g}"
        in (UNEARNED_INCENTIVES["share"])
    )


def test_the_honest_numbers_are_those_of_the_game() -> None:
    game = equilibrium([1.0] * OWNERS, reward=REWARD)
    utility = REWARD - game.total_budget
    assert utility == pytest.approx(REFUND_UTILITY.before)
    assert utility / OWNERS == pytest.approx(SHARE_UTILITY.before, abs=5e-4)
    # The same budget for less: what is left to owners is the price less what it costs them.
    assert REFUND_PRICE.after - game.total_budget == pytest.approx(REFUND_UTILITY.after)


@pytest.mark.parametrize("unearned", UNEARNED)
def test_a_card_invites_what_its_rules_do(unearned) -> None:
    assert incentive(card(unearned=unearned)) == UNEARNED_INCENTIVES[unearned]
    # All is earned before round 0: nothing is left to go anywhere.
    assert incentive(card(unearned=unearned, vesting="upfront")) == UPFRONT_INCENTIVE
    assert incentive_of(vesting="by-round", unearned=unearned) == UNEARNED_INCENTIVES[unearned]


@pytest.mark.parametrize(
    ("items", "until"),
    [({}, "until round 2, the last one, closes"), ({"hold_rounds": 2}, "(rounds 0 to 1, 2)")],
)
def test_what_evidence_holds_is_part_of_the_rules_of_pay(items, until) -> None:
    plain = card(unearned="fund", rounds=3)
    spec = EvidenceSpec(reference="0" * 64, records=80, beta=0.02, **items)
    held = held_pay(replace(plain, evidence=spec))
    assert held_pay(plain) is None
    assert incentive(replace(plain, evidence=spec)) == f"{incentive(plain)}; {held.sentence}"
    for part in (until, "80 of the buyer's", "market's fund", "at most 0.02", held.not_covered):
        assert part in held.sentence
    assert (held.rounds, held.blocks) == (items.get("hold_rounds", 3), 2 if items else 1)
    others = held_pay(replace(plain, evidence=replace(spec, population="any-class-mixture")))
    assert others.not_covered != held.not_covered
    assert "any mixture of the buyer's classes" in others.sentence
