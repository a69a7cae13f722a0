"""What deviations gain: the known attacks before the rules, and nothing that must not be after.

Every rule is switched off in turn (``protocol_faults``): the gain that it prevents comes back.
"""

import math
from pathlib import Path

import numpy as np
import pytest

from fedbourse.embedded.deviation_market import BUYER, deviation_market
from fedbourse.game import equilibrium
from fedbourse.game.certificate import regrets
from fedbourse.game.game import Game
from fedbourse.game.price_discovery import PriceDiscovery, TickSum
from fedbourse.study.deviations.findings import NOTHING, all_cases, best_of, deviation_study
from fedbourse.study.deviations.old_protocol import play_old_protocol
from fedbourse.study.deviations.play import Scenario, TradeSetting
from fedbourse.study.deviations.search import Axis, search
from fedbourse.study.deviations.strategies import Actor, Honest, Leaver, Slow
from fedbourse.study.deviations.tables import finding_row, markdown
from study import protocol_faults as faults

CASES = all_cases()
VALUES = (1.0, 1.2, 1.4)
HONEST = {f"owner-{value:g}": Honest(value) for value in VALUES}


@pytest.fixture(scope="module")
def market():
    with deviation_market() as opened:
        yield opened


def gain(case, play, point) -> float:
    """Return what a point gains over playing as intended."""
    intended = case.score(case.intended, play(case.intended))
    scenario = case.scenario(point)
    return case.score(scenario, play(scenario)) - intended


def test_without_deviations_both_protocols_find_the_equilibrium(market) -> None:
    honest = equilibrium(VALUES, reward=10.0)
    for play in (play_old_protocol, market.play):
        outcome = play(Scenario(TradeSetting(), HONEST))
        assert outcome.completed
        assert outcome.refunded == outcome.fund == 0.0
        for name, value, utility in zip(HONEST, VALUES, honest.utilities, strict=True):
            assert outcome.utility(name, value=value) == pytest.approx(utility, abs=2e-6)


# Before the rules -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "at_least"),
    [
        ("acting-cheaper", 1.2499),
        ("several-names", 0.2777),
        ("puppet-share", 9.95),
        ("sniping", 3.6 * 1.111),
        ("silent-device", 3.6 * 1.111),
        ("shill", -8.78),
        ("puppet-declines", -8.77),
        ("puppet-stays-away-fund", -8.78),
        ("puppet-delivers", -8.78),
        ("early-settlement", -8.77),
    ],
)
def test_search_finds_the_known_gains_of_the_old_protocol(key: str, at_least: float) -> None:
    _, best = best_of(CASES[key], play_old_protocol, plays=240, seed=0)
    assert best.score >= at_least


@pytest.mark.parametrize(
    ("key", "at_most"), [("puppet-declines", 0.02), ("early-settlement", 0.34)]
)
def test_what_the_buyer_saved_was_the_owners(key: str, at_most: float) -> None:
    intended, best = best_of(CASES[key], play_old_protocol, plays=240, seed=0)
    assert intended.owners_utility == pytest.approx(1.25)
    assert best.owners_utility <= at_most * intended.owners_utility


def test_a_ring_sold_next_to_nothing_for_the_whole_reward() -> None:
    intended, best = best_of(CASES["ring"], play_old_protocol, plays=40, seed=0)
    assert intended.sold == pytest.approx(10 / 1.8)
    assert best.sold <= 0.0008
    assert best.score == pytest.approx(10.0, abs=1e-2)


def test_a_jump_of_a_fifth_costs_the_others_little_where_the_rule_settles() -> None:
    """Eight equal owners; one share jumps by .2 around the root, so that P cannot converge."""
    total, share = 8.75, 1 / 8
    discovery = PriceDiscovery.start(total_budget=5.0)
    while not discovery.converged:
        at = discovery.total_budget
        jump = share + (0.1 if at < total else -0.1)
        shares = [*(max(0.0, 1 - at / 10.0) for _ in range(7)), jump]
        discovery = discovery.after(TickSum(at, 8, math.fsum(shares)))
    assert discovery.qualifying is not None
    assert discovery.qualifying.share_sum == pytest.approx(0.9, abs=1e-4)
    budgets = np.array([*[share] * 7, share - 0.1]) * total
    others = regrets(Game.of([1.0] * 8, reward=10.0), budgets)[:7]
    assert others.max() / 10.0 == pytest.approx(0.00164, abs=1e-5)


# Under the rules --------------------------------------------------------------------------------

RULES = [
    ("puppet-fund", (0.51, 0.001, 0), (faults.absentees_are_shared,)),
    ("puppet-refund", (0.51, 0.001, 0), (faults.absentees_are_shared,)),
    # Either of these two rules alone is enough against sniping.
    ("sniping", (0.3, 0.9), (faults.no_activity_rule, faults.replies_can_be_taken_back)),
    (
        "silent-device",
        (0.3, 0.9),
        (
            faults.missing_replies_repeat_the_last,
            faults.no_activity_rule,
            faults.replies_can_be_taken_back,
        ),
    ),
    ("jumping-replies", (9.0, 0.95, 0.25), (faults.no_activity_rule,)),
    ("leaving", (0.5, 8, 4.0, 0.0, 1), (faults.exits_cost_no_time,)),
    ("not-replying", (3.125,), (faults.missing_replies_repeat_the_last,)),
    ("not-signing", (1.0,), (faults.absentees_are_paid, faults.unsigned_terms_count)),
    ("not-delivering", (1.0,), (faults.absentees_are_paid,)),
    ("shill", (500.0, 0.0177, 0), (faults.decliners_are_refunded,)),
    ("shill", (500.0, 0.0177, 1), (faults.decliners_are_refunded,)),
    ("puppet-declines", (1.25, 0), (faults.decliners_are_refunded,)),
    ("puppet-stays-away-fund", (500.0, 0.0177), (faults.absentees_are_refunded,)),
    ("puppet-stays-away-share", (500.0, 0.0177), (faults.absentees_are_refunded,)),
    (
        "early-settlement",
        (1.45, 1),
        (faults.latest_tick_settles, faults.devices_sign_anything_above_their_value),
    ),
    ("no-data", (0.9,), (faults.evidence_never_stands,)),
    ("echo", (0.9, 0.02), (faults.evidence_never_stands,)),
    (
        "one-class-any-class-mixture",
        (0,),
        (faults.evidence_is_for_owners_like_the_reference,),
    ),
    ("bad-reference", (45.0,), (faults.forfeited_pay_is_refunded,)),
]


def test_every_gain_that_must_be_zero_has_its_rule() -> None:
    assert {key for key, _, _ in RULES} == {key for key, case in CASES.items() if not case.remains}


@pytest.mark.parametrize(
    ("key", "point", "switched_off"), RULES, ids=[f"{key}-{point[-1]:g}" for key, point, _ in RULES]
)
def test_a_gain_is_zero_by_its_rule_and_comes_back_without(
    key: str, point: tuple[float, ...], switched_off, market, monkeypatch
) -> None:
    assert gain(CASES[key], market.play, point) <= NOTHING
    for fault in switched_off:
        fault(monkeypatch)
    assert gain(CASES[key], market.play, point) > 0.1


@pytest.mark.parametrize("key", [key for key, case in CASES.items() if not case.remains])
def test_search_finds_no_gain_where_there_must_be_none(key: str, market) -> None:
    _, best = best_of(CASES[key], market.play, plays=3, seed=1)
    assert best.gain == 0.0


def test_a_buyer_cannot_ask_for_a_settlement(market) -> None:
    outcome = market.play(CASES["early-settlement"].scenario((1.45, 1)))
    assert outcome.refusals == ("settle is for the market; the caller is buyer",)


@pytest.mark.parametrize(
    ("key", "point", "score"),
    [
        ("acting-cheaper", (0.8,), 1.25),
        ("several-names", (9,), 10 / 36),
        ("puppet-share", (0.51, 0.001, 0), 9.96),
        ("paid-upfront", (0.01,), 9.90),
        ("ring", (1e4,), 10.0),
        ("ring-with-minimum", (1.99,), 6.77),
        ("puppet-stays-away-refund", (500.0, 0.0177), -8.77),
        ("puppet-delivers", (500.0, 0.0177), -8.77),
        ("smallest-budget", (1.249,), -8.757),
        ("no-data-no-evidence", (0.01,), 9.905),
        ("no-data-small-budget", (2.2725,), 0.273),
        ("ten-records-no-evidence", (0.01, 10.0), 9.905),
        ("ten-records", (0.9177, 7.68), 4.427),
        ("one-class-like-reference", (5,), 0.130),
        ("puppet-knows-reference", (500.0, 0.0177, 0.0), -8.77),
    ],
)
def test_gains_that_remain_have_their_number(key, point, score, market) -> None:
    case = CASES[key]
    assert case.remains
    scenario = case.scenario(point)
    assert case.score(scenario, market.play(scenario)) == pytest.approx(score, abs=0.01)


def test_an_honest_owner_of_one_class_loses_all_its_pay_unless_the_card_is_for_mixtures(
    market,
) -> None:
    for population, utility in (("like-reference", -1.094), ("any-class-mixture", 0.156)):
        case = CASES[f"one-class-{population}"]
        outcome = market.play(case.intended)
        assert case.score(case.intended, outcome) == pytest.approx(utility, abs=1e-3)
        assert outcome.allocations["deviator"].delivered == outcome.rounds


@pytest.mark.parametrize(("angle", "lost"), [(0.0, 0), (45.0, 4), (180.0, 0)])
def test_a_buyer_s_bad_reference_dismisses_at_most_half_and_returns_nothing(
    angle: float, lost: int, market
) -> None:
    """One that fits half of the owners costs the others their pay; one that fits none is void."""
    outcome = market.play(CASES["bad-reference"].scenario((angle,)))
    stakes = outcome.allocations.values()
    assert [stake.earned for stake in stakes].count(0.0) == lost
    assert outcome.refunded == 0.0
    assert outcome.fund == pytest.approx(1.25 * lost, abs=1e-5)
    assert all(stake.earned in (0.0, stake.payment) for stake in stakes)


def test_a_minimum_ends_the_ring(market) -> None:
    scenario = CASES["ring-with-minimum"].scenario((2.01,))
    outcome = market.play(scenario)
    assert not outcome.completed
    assert outcome.refunded == 10.0


def test_no_tick_is_shorter_than_the_card_says(market) -> None:
    """Who replies late must not leave the others a last tick that they cannot reply to."""
    names = {**HONEST, "slow": Slow(1.0), "quick": Actor(1.0, 0.5)}
    outcome = market.play(Scenario(TradeSetting(ticks=15), names))
    with market.embedded.store.read() as tx:
        (task,) = tx.tasks(buyer=BUYER.party, limit=1)
        events = tx.events(task.id, limit=1000)
    offers = [event for event in events if event.kind in ("announced", "ticked")]
    assert len(offers) == outcome.ticks
    lengths = {event.body["offer"]["tick_ends_ms"] - event.at_ms for event in offers}
    assert lengths == {60_000}
    assert set(HONEST) & set(outcome.allocations)


@pytest.mark.parametrize("key", ["leaving", "puppet-share", "puppet-stays-away-fund", "shill"])
def test_every_credit_is_somewhere(key: str, market) -> None:
    point = tuple(axis.at(0.5) for axis in CASES[key].axes)
    scenario = CASES[key].scenario(point)
    outcome = market.play(scenario)
    paid = outcome.earned(*scenario.names) + outcome.refunded + outcome.fund
    assert paid == pytest.approx(scenario.setting.reward, abs=1e-9)


# The search and its table ---------------------------------------------------------------------


def test_search_comes_close_to_a_peak() -> None:
    axes = (Axis("a", 0.01, 100.0, log=True), Axis("b", 1, 9, whole=True), Axis("c", -1.0, 1.0))
    best = search(
        lambda p: -(math.log(p[0] / 3) ** 2) - abs(p[1] - 7) - abs(p[2] - 0.25),
        axes,
        plays=400,
        rng=np.random.default_rng(0),
    )
    assert best[0] == pytest.approx(3.0, rel=0.1)
    assert best[1] == 7
    assert best[2] == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize(
    "axis", [Axis("a", 0.01, 5.0, log=True), Axis("b", 1, 9, whole=True), Axis("c", -1.0, 1.0)]
)
def test_an_axis_keeps_to_its_ends(axis: Axis) -> None:
    assert [axis.at(-1.0), axis.at(2.0)] == [axis.low, axis.high]
    for part in (0.0, 0.3, 1.0):
        number = axis.at(part)
        assert axis.at(axis.part_of(number)) == pytest.approx(number)


def test_the_table_says_what_each_case_compares() -> None:
    findings = deviation_study(play_old_protocol, cases=list(CASES.values()), plays=1)
    page = markdown(findings)
    rows = [finding_row(finding) for finding in findings]
    assert [row["key"] for row in rows] == list(CASES)
    for finding, row in zip(findings, rows, strict=True):
        assert f"| {finding.case.deviation} |" in page
        if finding.case.party == "buyer":
            assert row["intended"] == pytest.approx(10.0, abs=1e-6)
        assert finding.after.gain == 0.0 or row["after"] != row["intended"]


def test_a_leaver_leaves_in_its_turn() -> None:
    from fedbourse.study.deviations.play import PlayedOffer

    steady = PlayedOffer(10.0, (2.0, 5.0, 5.001), last=False)
    assert Leaver(1.0, place=0).leaves(steady)
    assert not Leaver(1.0, place=1).leaves(steady)
    assert not Leaver(1.0).leaves(steady)
    assert Leaver(1.0).leaves(PlayedOffer(10.0, (2.0,), last=True))


def test_the_page_has_a_row_for_every_case() -> None:
    page = (Path(__file__).parents[2] / "docs" / "theory" / "deviations.md").read_text()
    for case in CASES.values():
        assert f"| {case.deviation} |" in page
        assert case.remains in page
