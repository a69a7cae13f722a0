"""What owners say and sign: discovery, messages that follow each other, terms, erasure."""

import math
from dataclasses import replace

import pytest

from fedbourse.encoding.canonical import canonical, digest
from fedbourse.errors import Conflict, InvalidInput, LeftTask, NotAllowed, NotFound
from fedbourse.game import discover, equilibrium, share_at
from fedbourse.market import log
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.records import State
from fedbourse.protocol.keys import SigningKey, verified
from fedbourse.protocol.messages import allocation_document, interest_message, plan_message
from fedbourse.testing.trading import BUYER, KEY, Trading, best_budget

R = 10_000_000


@pytest.fixture
def trading(store) -> Trading:
    made = Trading(store)
    made.fund(R)
    return made


def budgets(trading, task, owners) -> list[float]:
    allocations = {
        allocation.owner: allocation.budget for allocation in trading.allocations(task.id)
    }
    return [allocations.get(owner.name, 0.0) for owner in owners]


# -- discovery -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 30])
def test_withheld_values_reach_the_equilibrium(trading, count) -> None:
    owners = trading.owners(*[1.0 + 2.0 * i / count for i in range(count)])
    task = trading.settled(owners)
    known = equilibrium([owner.value for owner in owners], reward=10.0)
    assert task.tick <= 12
    assert budgets(trading, task, owners) == pytest.approx(known.dense(), rel=1e-6, abs=1e-9)


def test_lying_owners_reach_the_equilibrium_of_what_they_claim(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2, 1.3, 1.4)
    claimed = dict(zip((o.name for o in owners), (1.0, 2.0, 1.2, 0.5, 1.4), strict=True))

    def reply(owner, task):
        return best_budget(replace(owner, value=claimed[owner.name]), task)

    task = trading.play(owners, trading.announced(owners), reply)
    known = equilibrium(list(claimed.values()), reward=10.0)
    assert task.tick <= 12
    assert budgets(trading, task, owners) == pytest.approx(known.dense(), rel=1e-6, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("max_rho", [100.0, 0.6])
def test_owners_with_caps_reach_the_equilibrium_under_them(trading, max_rho) -> None:
    owners = trading.owners(1.0, 1.1, 1.2, 1.3)
    own = dict(zip((o.name for o in owners), (0.2, 50.0, 50.0, 50.0), strict=True))
    caps = [min(cap, max_rho) for cap in own.values()]
    task = trading.play(
        owners,
        trading.announced(owners, max_rho=max_rho),
        lambda owner, task: min(best_budget(owner, task), own[owner.name]),
    )
    known = discover([owner.value for owner in owners], reward=10.0, caps=caps)
    assert budgets(trading, task, owners) == pytest.approx(known.budgets, rel=1e-5)
    assert max(budgets(trading, task, owners)) <= max_rho
    assert budgets(trading, task, owners)[0] == 0.2


def test_silent_owners_hold_nobody_up_for_long(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2, 1.3)
    task = trading.announced(owners)
    began = trading.time_ms
    task = trading.play(
        owners,
        task,
        lambda owner, task: None if owner is owners[3] else best_budget(owner, task),
    )
    known = equilibrium([1.0, 1.1, 1.2], reward=10.0)
    assert task.state is State.SETTLED
    assert trading.time_ms - began == 60_000  # nobody waits for it twice
    assert budgets(trading, task, owners)[:3] == pytest.approx(known.dense(), rel=1e-6)
    assert budgets(trading, task, owners)[3] == 0.0


# -- replies that contradict each other ------------------------------------------------------------


def second_tick(trading, owners, **changes):
    """A task at tick 1, to which everybody replied its best at tick 0."""
    task = trading.announced(owners, **changes)
    for owner in owners:
        trading.plan(owner, task)
    trading.advance()
    return trading.task(task.id)


@pytest.mark.parametrize("factor", [1.001, 2.0])
def test_a_reply_that_contradicts_an_earlier_one_is_refused_with_the_reason(
    trading, factor
) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = second_tick(trading, owners, cost="linear")
    first, total = trading.participation(owners[0], task.id)["plan"]["budget"], task.total_budget
    share = first / task.totals[0]
    # What the same value replies here; to sell more is to have another one.
    honest = share_at(10.0 * (1 - share) / task.totals[0], total, reward=10.0) * total
    with pytest.raises(InvalidInput, match="contradicts") as refusal:
        trading.plan(owners[0], task, honest * factor)
    assert f"at a total of {total:g}" in str(refusal.value)
    assert trading.participation(owners[0], task.id)["replies"][-1]["tick"] == 0
    trading.plan(owners[0], task, honest)
    assert trading.participation(owners[0], task.id)["plan"]["budget"] == honest


def test_who_insists_on_a_contradiction_misses_the_tick_and_is_out(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2, 1.3)
    task = second_tick(trading, owners)
    for owner in owners[:3]:
        trading.plan(owner, task)
    with pytest.raises(InvalidInput, match="contradicts"):
        trading.plan(owners[3], task, 90.0)
    assert trading.wait(60) == 1
    with pytest.raises(LeftTask, match="you did not reply to tick 1; a missed tick counts"):
        trading.plan(owners[3], trading.task(task.id))
    task = trading.play(owners[:3], trading.task(task.id))
    known = equilibrium([1.0, 1.1, 1.2], reward=10.0)
    assert budgets(trading, task, owners[:3]) == pytest.approx(known.dense(), rel=1e-6)
    assert [check for check in trading.verified(task.id) if check.passed is False] == []


def test_a_reply_may_be_corrected_until_its_tick_closes(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.announced(owners)
    trading.plan(owners[0], task, 90.0)
    trading.plan(owners[0], task)  # only closed ticks count
    trading.plan(owners[1], task)
    assert trading.advance() == 1
    assert trading.events(task.id)[-1].body["replies"] == 2
    with pytest.raises(Conflict, match="the offer stands at tick 1; the plan is for tick 0"):
        trading.plan(owners[0], task, 1.0)


@pytest.mark.parametrize("budget", [0.19, 1e-9])
def test_a_budget_below_the_card_s_least_is_refused(trading, budget) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.announced(owners, min_budget=0.2)
    with pytest.raises(InvalidInput, match=r"budget must be 0 or at least 0\.2; found"):
        trading.plan(owners[0], task, budget)
    trading.plan(owners[0], task, 0.2)
    trading.plan(owners[0], task, 0.0)


def test_a_zero_stands_for_larger_totals_without_a_message(trading) -> None:
    owners = trading.owners(1.0, 1.1, 50.0)
    task = trading.announced(owners)
    first = task.total_budget
    for owner, budget in zip(owners, (0.9 * first, 0.9 * first, 0.0), strict=True):
        trading.plan(owner, task, budget)
    trading.advance()
    task = trading.task(task.id)
    assert task.total_budget > first
    assert task.asked == 2
    with pytest.raises(InvalidInput, match="a zero holds at every larger total"):
        trading.plan(owners[2], task, 0.5)
    trading.plan(owners[2], task, 0.0)  # to say so again changes nothing
    assert [each["tick"] for each in trading.participation(owners[2], task.id)["replies"]] == [0]
    assert trading.advance() == 0
    for owner in owners[:2]:
        trading.plan(owner, task, 0.9 * first)
    assert trading.advance() == 1
    assert trading.participation(owners[2], task.id)["exit"] is None
    assert [check for check in trading.verified(task.id) if check.passed is False] == []


# -- messages --------------------------------------------------------------------------------------


def test_each_message_holds_the_hash_of_the_one_before(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.settled(owners, report=True)
    previous, offers = task.card.digest, []
    for body in (e.body for e in trading.events(task.id) if "offer" in e.body):
        assert body["offer"]["previous"] == previous
        assert digest(body["offer"]) == body["hash"]
        previous = body["hash"]
        offers.append(previous)
    assert task.offer == previous
    participation = trading.participation(owners[0], task.id)
    said = interest_message(task=task.id, owner=owners[0].name, value=1.0, card=task.card.digest)
    assert participation["interest"]["leaf"] == log.leaf(participation["interest"]["salt"], said)
    plan = participation["plan"]
    said = plan_message(
        task=task.id,
        owner=owners[0].name,
        tick=task.settled_tick,
        budget=plan["budget"],
        offer=offers[task.settled_tick],
    )
    assert plan["leaf"] == log.leaf(plan["salt"], said)
    assert participation["terms"]["terms"]["previous"] == participation["allocation"]["leaf"]
    terms = participation["terms"]["terms"]
    assert terms["card"] == task.card.digest
    assert (terms["tick"], terms["total_budget"]) == (
        task.settled_tick,
        task.totals[task.settled_tick],
    )


@pytest.mark.parametrize("previous", ["", "0" * 64])
def test_a_message_that_follows_another_one_is_refused(trading, previous) -> None:
    trading.fund(R, reference="more")
    owners = trading.owners(1.0, 1.1)
    task = trading.opened()
    with pytest.raises(Conflict, match="the card has the hash"):
        trading.do(
            owner_commands.register_interest,
            owners[0].caller,
            task.id,
            value=None,
            previous=previous,
        )
    task = trading.announced(owners)
    options = {"tick": 0, "budget": 1.0, "previous": previous}
    with pytest.raises(Conflict, match="the offer has the hash"):
        trading.do(owner_commands.submit_plan, owners[0].caller, task.id, **options)


@pytest.mark.parametrize("tick", [-1, 1, 2**70])
def test_a_plan_for_another_tick_is_refused(trading, tick) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.announced(owners)
    options = {"tick": tick, "budget": 1.0, "previous": task.offer}
    with pytest.raises(Conflict, match="the offer stands at tick 0"):
        trading.do(owner_commands.submit_plan, owners[0].caller, task.id, **options)


@pytest.mark.parametrize(
    "budget", [-1.0, -1e-9, math.nan, math.inf, 100.1, 1e-101, "1", True, None]
)
def test_a_plan_that_is_no_budget_is_refused(trading, budget) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.announced(owners)
    options = {"tick": 0, "budget": budget, "previous": task.offer}
    with pytest.raises(InvalidInput, match="budget must be"):
        trading.do(owner_commands.submit_plan, owners[0].caller, task.id, **options)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, 1e101, 1e-101, "1", True])
def test_a_value_that_is_none_is_refused(trading, value) -> None:
    owners = trading.owners(1.0)
    task = trading.opened()
    options = {"value": value, "previous": task.card.digest}
    with pytest.raises(InvalidInput, match="value must be"):
        trading.do(owner_commands.register_interest, owners[0].caller, task.id, **options)


def test_the_last_interest_and_the_last_plan_count(trading) -> None:
    trading.fund(R, reference="more")
    owners = trading.owners(1.0, 1.1)
    task = trading.opened()
    for value in (3.0, None, 2.0):
        trading.do(
            owner_commands.register_interest,
            owners[0].caller,
            task.id,
            value=value,
            previous=task.card.digest,
        )
    assert trading.participation(owners[0], task.id)["interest"]["value"] == 2.0
    task = trading.announced(owners)
    for budget in (3.0, 0.0, 2.0):
        trading.plan(owners[0], task, budget)
    assert trading.participation(owners[0], task.id)["plan"]["budget"] == 2.0
    assert trading.advance() == 0  # one owner, however often it answers, is not two


def test_who_showed_no_interest_plans_nothing(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.announced(owners[:2])
    with pytest.raises(NotAllowed, match="registered no interest"):
        trading.plan(owners[2], task, 1.0)


# -- terms -----------------------------------------------------------------------------------------


def test_terms_are_signed_by_both_sides(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.in_training(owners)
    for owner in owners:
        participation = trading.participation(owner, task.id)
        text = canonical(participation["terms"]["terms"])
        assert verified(KEY.public, text, participation["terms"]["market_signature"])
        assert verified(owner.key.public, text, participation["allocation"]["signature"])
        assert not verified(owner.key.public, text + b" ", participation["allocation"]["signature"])


def test_a_signature_of_another_key_or_of_other_terms_is_refused(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.settled(owners)
    with pytest.raises(InvalidInput, match="signature must be the device's own"):
        trading.decide(owners[0], task.id, key=SigningKey.generate())
    with pytest.raises(InvalidInput, match="signature must be the device's own"):
        trading.decide(owners[0], task.id, key=owners[1].key)
    participation, other = (trading.participation(owner, task.id)["terms"] for owner in owners)
    options = {"accept": True, "signature": owners[0].key.sign(canonical(other["terms"]))}
    with pytest.raises(InvalidInput, match="signature must be the device's own"):
        trading.do(
            owner_commands.decide,
            owners[0].caller,
            task.id,
            terms_digest=participation["digest"],
            **options,
        )
    with pytest.raises(Conflict, match="the terms have the hash"):
        trading.do(
            owner_commands.decide,
            owners[0].caller,
            task.id,
            terms_digest=other["digest"],
            **options,
        )
    for signature in (None, "", "rubbish"):
        with pytest.raises(InvalidInput, match="signature must be"):
            trading.do(
                owner_commands.decide,
                owners[0].caller,
                task.id,
                accept=True,
                terms_digest=participation["digest"],
                signature=signature,
            )
    assert all(allocation.state == "offered" for allocation in trading.allocations(task.id))


def test_a_decision_stands(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.settled(owners)
    assert trading.decide(owners[0], task.id).state == "signed"
    assert trading.decide(owners[0], task.id).state == "signed"
    with pytest.raises(Conflict, match="has signed its terms already"):
        trading.decide(owners[0], task.id, accept=False)
    assert trading.decide(owners[1], task.id, accept=False).signature is None
    with pytest.raises(Conflict, match="has declined its terms already"):
        trading.decide(owners[1], task.id)


def test_who_was_not_chosen_has_nothing_to_sign(trading) -> None:
    owners = trading.owners(1.0, 1.1, 9.0)
    task = trading.settled(owners)
    with pytest.raises(NotFound, match="was not chosen"):
        trading.do(
            owner_commands.decide,
            owners[2].caller,
            task.id,
            accept=False,
            terms_digest="",
            signature=None,
        )


# -- erasure ---------------------------------------------------------------------------------------


def test_erasure_forgets_the_owner_and_keeps_the_log_whole(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.completed(owners, report=True)
    before = trading.participation(owners[0], task.id)
    trading.do(owner_commands.erase, owners[0].caller, task.id)
    after = trading.participation(owners[0], task.id)
    assert (
        after["interest"]["value"]
        is after["plan"]["budget"]
        is after["allocation"]["budget"]
        is None
    )
    for part in ("interest", "plan", "allocation"):
        assert after[part]["salt"] == ""
        assert after[part]["leaf"] == before[part]["leaf"]
    assert {each["budget"] for each in after["replies"]} == {None}
    assert after["terms"] is None
    assert after["allocation"]["payment_micro"] == before["allocation"]["payment_micro"]
    assert [check for check in trading.verified(task.id) if check.passed is False] == []
    for owner in owners:
        found = trading.verified(task.id, owner=owner)
        assert [check for check in found if check.passed is False] == []
    allocation = trading.participation(owners[1], task.id)["allocation"]
    assert allocation["leaf"] == log.leaf(
        allocation["salt"],
        allocation_document(
            owner=owners[1].name,
            budget=allocation["budget"],
            payment_micro=allocation["payment_micro"],
        ),
    )
    trading.do(owner_commands.erase, owners[0].caller, task.id)  # once more changes nothing
    assert trading.participation(owners[0], task.id) == after


def test_erasure_of_everybody_keeps_the_log_whole(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.completed(owners, report=True, reward="best-reported", max_reward=10.0)
    for owner in owners:
        trading.do(owner_commands.erase, owner.caller, task.id)
    assert [check for check in trading.verified(task.id) if check.passed is False] == []


def test_nothing_is_erased_before_the_end_or_for_a_stranger(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.in_training(owners[:2])
    with pytest.raises(Conflict, match="needs a task that has ended; it is training"):
        trading.do(owner_commands.erase, owners[0].caller, task.id)
    with pytest.raises(NotFound, match="said nothing"):
        trading.do(owner_commands.erase, owners[2].caller, task.id)
    with pytest.raises(NotAllowed):
        trading.do(owner_commands.erase, replace(BUYER), task.id)
