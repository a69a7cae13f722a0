"""Evidence in a market: pay is held, released or lost once, and everybody can recompute it."""

from dataclasses import replace

import pytest

from fedbourse.errors import Conflict, InvalidData, InvalidInput, NotAllowed, NotFound
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.records import State
from fedbourse.market.service import FUND, escrow
from fedbourse.market.views import View
from fedbourse.testing.trading import AUDITOR, BUYER, Trading, caller, card
from market.evidence_trade import REFERENCE, ROUNDS, VALUES, WRONG, changes, trained


@pytest.fixture
def trading(store) -> Trading:
    made = Trading(store)
    made.fund(20_000_000)
    return made


def states(trading, task) -> dict[str, str]:
    return {each.owner: each.state for each in trading.allocations(task.id)}


@pytest.mark.parametrize("hold_rounds", [None, 3])
@pytest.mark.parametrize("population", ["like-reference", "any-class-mixture"])
def test_a_device_without_data_earns_nothing(trading, hold_rounds, population) -> None:
    owners = trading.owners(0.2, *VALUES)
    task = trading.in_training(owners, **changes(hold_rounds=hold_rounds, population=population))
    before = {each.owner: each.payment for each in trading.allocations(task.id)}
    task = trained(trading, task, owners, without_data=[0])
    assert task.state is State.COMPLETED
    after = states(trading, task)
    assert after.pop(owners[0].name) == "dismissed"
    assert set(after.values()) == {"signed"}
    assert trading.balance(owners[0].name) == 0
    for owner in owners[1:]:
        assert trading.balance(owner.name) == before.get(owner.name, 0)
    assert trading.balance(FUND) == before[owners[0].name]
    assert trading.balance(escrow(task.id)) == 0
    checks = trading.verified(task.id)
    assert all(check.passed for check in checks), checks


def test_honest_owners_are_paid_all_and_nothing_stays_held(trading) -> None:
    owners = trading.owners(*VALUES)
    task = trading.in_training(owners, **changes())
    task = trained(trading, task, owners)
    for each in trading.allocations(task.id):
        assert (each.state, each.earned, each.held) == ("signed", each.payment, 0)
        assert trading.balance(each.owner) == each.payment
    assert trading.balance(FUND) == 0
    checks = trading.verified(task.id)
    assert all(check.passed for check in checks), checks


def test_pay_is_held_until_its_block_ends(trading) -> None:
    owners = trading.owners(*VALUES)
    task = trading.in_training(owners, **changes(hold_rounds=4))
    task = trained(trading, task, owners, until=3)
    held = trading.allocations(task.id)
    assert all(each.held == each.earned > 0 for each in held)
    assert not any(trading.balance(each.owner) for each in held)
    task = trained(trading, task, owners, until=4)
    for each in trading.allocations(task.id):
        assert each.held == 0
        assert trading.balance(each.owner) == each.earned == each.payment * 4 // ROUNDS
    receipt = trading.update(owners[0], task)["receipt"]
    assert 0 < receipt["held_micro"] < receipt["earned_micro"]


def test_a_reference_that_fits_nobody_dismisses_nobody(trading) -> None:
    owners = trading.owners(*VALUES)
    task = trading.in_training(owners, **changes(WRONG))
    task = trained(trading, task, owners)
    assert task.state is State.COMPLETED
    for each in trading.allocations(task.id):
        assert (each.state, trading.balance(each.owner)) == ("signed", each.payment)
    assert "void" in trading.see(View.evidence, BUYER, task.id).summary
    checks = trading.verified(task.id)
    assert all(check.passed for check in checks), checks


def test_a_dismissed_device_is_asked_no_more_and_weighs_nothing(trading) -> None:
    owners = trading.owners(0.2, *VALUES)
    task = trading.in_training(owners, **changes())
    task = trained(trading, task, owners, without_data=[0], until=2)
    assert states(trading, task)[owners[0].name] == "dismissed"
    assert trading.see(View.round_request, owners[0].caller, task.id, after=-1) is None
    assert trading.see(View.round_request, owners[1].caller, task.id, after=-1) is not None
    with pytest.raises(NotAllowed, match="no more updates"):
        trading.update(owners[0], task)


def test_scores_are_shown_to_nobody_before_the_end_and_then_to_each_its_own(trading) -> None:
    owners = trading.owners(0.2, *VALUES)
    task = trading.in_training(owners, **changes())
    task = trained(trading, task, owners, without_data=[0], until=3)
    for who in (AUDITOR, BUYER, owners[1].caller):
        for view in (View.evidence, View.reference):
            with pytest.raises(Conflict, match="has ended"):
                trading.see(view, who, task.id)
    with pytest.raises(Conflict, match="has ended"):
        trading.see(View.kept_round, AUDITOR, task.id, 0)
    task = trained(trading, task, owners, without_data=[0])
    assert {e.owner for e in trading.see(View.evidence, AUDITOR, task.id).findings} == {
        each.owner for each in trading.allocations(task.id)
    }
    (own,) = trading.see(View.evidence, owners[1].caller, task.id).findings
    assert own.owner == owners[1].name
    report = trading.see(View.evidence, BUYER, task.id)
    assert (report.findings, report.dismissed) == ([], 1)
    with pytest.raises(NotAllowed):
        trading.see(View.evidence, caller("owner:stranger"), task.id)
    with pytest.raises(NotAllowed, match="auditors only"):
        trading.see(View.reference, owners[1].caller, task.id)
    with pytest.raises(NotAllowed):
        trading.see(View.kept_round, BUYER, task.id, 0)


def test_owners_see_the_reference_where_the_card_says_so(trading) -> None:
    owners = trading.owners(*VALUES)
    task = trading.in_training(owners, **changes(reveal_to_owners=True))
    task = trained(trading, task, owners)
    assert trading.see(View.reference, owners[0].caller, task.id) == REFERENCE


@pytest.mark.parametrize("rounds", [1, 3, 5])
def test_cancelling_releases_held_pay_and_gives_the_buyer_none_of_it(trading, rounds) -> None:
    owners = trading.owners(0.2, *VALUES)
    task = trading.in_training(owners, **changes(hold_rounds=4))
    task = trained(trading, task, owners, without_data=[0], until=rounds)
    reward = sum(each.payment for each in trading.allocations(task.id))
    earned = {e.owner: e.earned for e in trading.allocations(task.id) if e.state == "signed"}
    trading.do(buyer_commands.cancel, BUYER, task.id)
    for owner, due in earned.items():
        assert trading.balance(owner) == due
    assert trading.balance(escrow(task.id)) == 0
    back = trading.balance(BUYER.party) - (20_000_000 - reward)
    assert back <= reward - reward * rounds // ROUNDS + len(owners)  # floors
    checks = trading.verified(task.id)
    assert not [check for check in checks if check.passed is False], checks


def test_a_task_that_is_cancelled_before_training_compares_nothing(trading) -> None:
    task = trading.settled(trading.owners(*VALUES), **changes())
    trading.do(buyer_commands.cancel, BUYER, task.id)
    report = trading.see(View.evidence, BUYER, task.id)
    assert (report.devices, report.blocks, report.findings) == (0, [], [])
    assert "nothing to compare" in report.summary
    checks = trading.verified(task.id)
    assert not [check for check in checks if check.passed is False], checks


def test_a_device_that_was_honest_at_first_loses_the_block_in_which_it_stops(trading) -> None:
    owners = trading.owners(0.9, *VALUES)
    task = trading.in_training(owners, **changes(hold_rounds=4))
    task = trained(trading, task, owners, until=4)
    task = trained(trading, task, owners, without_data=[0])
    allocation = next(e for e in trading.allocations(task.id) if e.owner == owners[0].name)
    assert allocation.state == "dismissed"
    assert trading.balance(owners[0].name) == allocation.payment * 4 // ROUNDS
    checks = trading.verified(task.id)
    assert all(check.passed for check in checks), checks


@pytest.mark.parametrize("junk", [1, 3])
def test_an_update_that_weighed_nothing_is_left_out_of_the_next_blocks_echo_test(
    trading, junk
) -> None:
    """Here every device without data falls in the last round of a block."""
    owners = trading.owners(0.2, *VALUES)
    task = trading.in_training(owners, **changes(hold_rounds=1))
    task = trained(trading, task, owners, without_data=range(junk))
    gone = {name for name, state in states(trading, task).items() if state == "dismissed"}
    assert gone == {owner.name for owner in owners[:junk]}
    checks = trading.verified(task.id)
    assert all(check.passed for check in checks), checks


# What an auditor finds out


@pytest.fixture
def ended(trading):
    owners = trading.owners(0.2, *VALUES)
    task = trading.in_training(owners, **changes())
    task = trained(trading, task, owners, without_data=[0])
    return trading.records(task.id, viewer=AUDITOR)


def evidence_check(found: dict):
    from fedbourse.market.audit import verify_task

    return next(check for check in verify_task(**found) if check.name == "evidence")


@pytest.mark.faults
@pytest.mark.parametrize(
    "fault", ["reference", "score", "dismissal", "update", "model", "log", "state"]
)
def test_a_forged_record_of_evidence_is_caught(ended, fault) -> None:
    assert evidence_check(ended).passed
    findings, kept = ended["evidence"]["findings"], ended["evidence"]["rounds"]
    junk = next(each for each in findings if each["dismissed_round"] is not None)
    honest = next(each for each in findings if each["dismissed_round"] is None)
    match fault:
        case "reference":
            body = bytearray(ended["evidence"]["reference"])
            body[-1] ^= 1
            ended["evidence"]["reference"] = bytes(body)
        case "score":
            honest["sums"]["plain"]["x"] += 1.0
        case "dismissal":
            junk["dismissed_round"] = None
        case "update":
            kept[0]["updates"][honest["owner"]] = kept[1]["updates"][honest["owner"]]
        case "model":
            kept[1]["model"] = kept[0]["model"]
        case "log":
            body = next(e["body"] for e in ended["events"] if "stands" in str(e["body"]))
            body["evidence"]["stands"] = False
        case "state":
            own = next(e for e in ended["owners"] if e["owner"] == junk["owner"])
            own["allocation"]["state"] = "signed"
    assert evidence_check(ended).passed is False


# Cards


def test_a_card_with_evidence_needs_its_reference_before_it_opens(trading) -> None:
    with pytest.raises(Conflict, match="reference records are missing"):
        trading.opened(**(changes() | {"reference": None}))


def test_another_reference_than_the_card_commits_to_is_refused(trading) -> None:
    with pytest.raises(InvalidData, match="commits to"):
        trading.opened(**(changes() | {"reference": WRONG}))


def test_a_reference_without_evidence_is_refused(trading) -> None:
    with pytest.raises(Conflict, match="no evidence"):
        trading.opened(reference=REFERENCE)
    task = trading.opened()
    with pytest.raises(NotFound, match="no evidence"):
        trading.see(View.evidence, BUYER, task.id)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"unearned": "refund"}, "nobody gains"),
        ({"unearned": "share"}, "nobody gains"),
        ({"vesting": "upfront"}, "by-round"),
    ],
)
def test_a_card_whose_dismissals_somebody_gains_from_is_refused(wrong, sentence) -> None:
    items = changes() | wrong
    del items["reference"]
    with pytest.raises(InvalidInput, match=sentence):
        card(**items)


@pytest.mark.parametrize(
    "wrong",
    [
        {"alpha": 0.0},
        {"beta": 1.0},
        {"k0": 2.0},
        {"population": "everybody"},
        {"hold_rounds": 0},
        {"records": 3},
        {"reference": "abc"},
        {"reveal_to_owners": "yes"},
    ],
)
def test_impossible_evidence_is_refused(wrong) -> None:
    spec = changes()["evidence"]
    with pytest.raises(InvalidInput):
        replace(spec, **wrong)


def test_a_card_with_evidence_survives_its_document() -> None:
    items = changes(hold_rounds=3)
    del items["reference"]
    made = card(**items)
    assert type(made).of(made.document) == made
