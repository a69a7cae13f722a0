"""What evidence will be able to tell: right about budgets, and silent about single owners."""

from dataclasses import dataclass

import numpy as np
import pytest

from fedbourse.errors import Conflict, InvalidInput, NotAllowed, NotFound
from fedbourse.market import evidence_outlook, evidence_report
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.evidence import CardReference
from fedbourse.market.evidence_outlook import unjudged_share
from fedbourse.market.views import View
from fedbourse.tasks.evidence_pilot import least_budgets
from fedbourse.testing.trading import AUDITOR, BUYER, OPERATOR, Trading, card
from market.evidence_trade import REFERENCE, SAMPLES, VALUES, changes, records, trained


def without_reference(**evidence) -> dict:
    return {name: item for name, item in changes(**evidence).items() if name != "reference"}


@pytest.mark.parametrize("hold_rounds", [None, 4])
def test_noise_is_told_apart_at_the_least_budget_and_not_far_below(hold_rounds) -> None:
    """The pilot's number against devices that send noise, or the gradient of their own records."""
    made = card(**without_reference(hold_rounds=hold_rounds))
    reference_of = CardReference.of(made, REFERENCE)
    least, *later = least_budgets(made, reference_of.records)
    assert len(later) == (0 if hold_rounds is None else 1)
    assert all(each > least for each in later)  # gradients shrink
    model, rule = made.build(), made.evidence.rule(made.rounds)
    rng = np.random.default_rng(3)

    def verdicts(budget: float, *, honest: bool) -> list[str]:
        scale = made.privacy_terms(task="pilot", budget=budget).scale
        parameters, shown = model.start(seed=made.start_seed), [rule.begin()] * 60
        own = rule.reference_records(records(SAMPLES, seed=11))
        for _ in range(made.evidence.block_rounds(made.rounds)):
            reference = reference_of.gradient(parameters)
            gradient = own.at(model, parameters, clip=made.clip).mean if honest else 0.0
            shown = [
                each.added(
                    rng.normal(0, scale, made.dimension) + gradient,
                    scale=scale,
                    reference=reference,
                    first=reference_of.first,
                )
                for each in shown
            ]
            parameters = parameters - made.step_size * reference.mean
        return [rule.verdict(each) for each in shown]

    assert verdicts(least, honest=False).count("dismissed") >= 50
    assert verdicts(least, honest=True).count("shown") >= 50
    assert verdicts(least / 10, honest=False).count("dismissed") <= 6


@dataclass
class Sold:
    budget: float
    payment: int


def share(*, small: int, large: int, bounds=(1.0,)) -> float | None:
    """Return what the buyer is told where so many owners sell 0.5 rho, and so many 2.0."""
    sold = [Sold(0.5, 500)] * small + [Sold(2.0, 2000)] * large
    return unjudged_share(bounds, sold)


def test_the_share_of_pay_that_cannot_be_judged_tells_no_single_owner() -> None:
    assert share(small=8, large=8) == 0.2
    assert share(small=20, large=5) == 0.5
    assert {share(small=few, large=9 - few) for few in range(10)} == {None}
    # Whether one of four owners is below the bound, or which, is not told.
    assert {share(small=few, large=12 - few) for few in range(5)} == {0.0}
    assert {share(small=12 - few, large=few) for few in range(5)} == {1.0}
    # One owner's pay moves it by a tenth at most.
    assert abs(share(small=8, large=8) - share(small=9, large=7)) <= 0.1 + 1e-9
    # Each block has its own bound, and the same part of the pay.
    assert share(small=8, large=8, bounds=(0.1, float("inf"))) == 0.5


def test_it_is_for_the_buyer_and_before_training_alone(store) -> None:
    trading = Trading(store)
    trading.fund(20_000_000)
    owners = trading.owners(*VALUES)
    task = trading.settled(owners, **changes())
    for who in (BUYER, OPERATOR):
        outlook = trading.see(View.evidence_outlook, who, task.id)
        assert outlook.unjudged_share is None  # of five owners
        assert "not told for fewer than 10 owners" in outlook.summary
    for who in (AUDITOR, owners[0].caller):
        with pytest.raises(NotAllowed, match="for the buyer"):
            trading.see(View.evidence_outlook, who, task.id)
    task = trading.signed(owners, task)
    with pytest.raises(Conflict, match="told once the task has ended"):
        trading.see(View.evidence_outlook, BUYER, task.id)


def test_it_says_what_is_missing(store, monkeypatch) -> None:
    trading = Trading(store)
    plain = trading.do(buyer_commands.create, BUYER, card())
    with pytest.raises(NotFound, match="no evidence"):
        trading.see(View.evidence_outlook, BUYER, plain.id)
    with pytest.raises(InvalidInput, match="no evidence"):
        least_budgets(plain.card, records(20, seed=1))
    draft = trading.do(buyer_commands.create, BUYER, card(**without_reference()))
    with pytest.raises(Conflict, match="fedbourse task reference"):
        trading.see(View.evidence_outlook, BUYER, draft.id)
    trading.do(buyer_commands.put_reference, BUYER, draft.id, content=REFERENCE)
    outlook = trading.see(View.evidence_outlook, BUYER, draft.id)
    assert (outlook.unjudged_share, outlook.least_budget > 0) == (None, True)
    monkeypatch.setattr(evidence_outlook, "WORK_MAX", 1000)
    outlook = trading.see(View.evidence_outlook, BUYER, draft.id)
    assert outlook.least_budget is None
    assert "too much work" in outlook.summary


def test_what_auditors_recompute_comes_in_pages(store, monkeypatch) -> None:
    monkeypatch.setattr(evidence_report, "_PAGE_BYTES", 1)
    trading = Trading(store)
    trading.fund(20_000_000)
    owners = trading.owners(*VALUES)
    task = trained(trading, trading.in_training(owners, **changes(hold_rounds=4)), owners)
    names = [each.owner for each in trading.allocations(task.id) if each.trained]

    def pages(view, items, **options):
        after, rows = "", []
        while after is not None:
            page = trading.see(view, AUDITOR, task.id, after=after, limit=100, **options)
            assert len(getattr(page, items)) <= 1
            rows += getattr(page, items)
            after = page.next
        return rows

    found = pages(View.evidence, "findings")
    assert [(each.block, each.owner) for each in found] == [(b, n) for b in (0, 1) for n in names]
    with store.read() as tx:
        stored = dict(tx.vectors(task.id, 3, at_once=10))
    updates = pages(View.kept_updates, "updates", number=3)
    assert [each.owner for each in updates] == sorted(stored) == names
    with pytest.raises(InvalidInput, match="a block and an owner"):
        trading.see(View.evidence, AUDITOR, task.id, after="ann")
