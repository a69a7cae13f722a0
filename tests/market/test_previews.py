"""A preview of a step says what the step then does, and the same whatever single owners said."""

from __future__ import annotations

from functools import partial

import pytest

from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.commands import training as training_commands
from fedbourse.market.lifecycle import Command
from fedbourse.market.previews import preview
from fedbourse.market.service import FUND, escrow
from fedbourse.tasks.card import Deadlines
from fedbourse.testing.trading import BUYER, OPERATOR, Trading, card

STEPS = {
    Command.OPEN: partial(buyer_commands.open_task, confirm_upfront=True),
    Command.ANNOUNCE: buyer_commands.announce,
    Command.TRAIN: training_commands.start,
    Command.CANCEL: buyer_commands.cancel,
}


@pytest.fixture
def trading(store):
    made = Trading(store)
    made.fund(90_000_000)
    return made


def seen(trading, task, command, who=BUYER):
    return trading.see(preview, who, trading.task(task.id), command)


def moved(trading, task, command):
    """Take a step, and return what the buyer, escrow and the fund hold afterwards."""
    trading.do(STEPS[command], BUYER, task.id)
    return tuple(map(trading.balance, (BUYER.party, escrow(task.id), FUND)))


def prepared(trading, state, **items):
    """Return a task in a state, with three owners."""
    if state == "draft":
        return trading.do(buyer_commands.create, BUYER, card(**items))
    owners = trading.owners(1.0, 1.1, 1.2)
    if state == "open":
        task = trading.opened(**items)
        for owner in owners:
            said = {"value": None, "previous": task.card.digest}
            trading.do(owner_commands.register_interest, owner.caller, task.id, **said)
        return task
    if state == "signed":
        items["deadlines"] = Deadlines(review_s=600)
        return trading.signed(owners, trading.settled(owners, **items))
    return getattr(trading, state)(owners, **items)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "command"),
    [
        ("draft", Command.OPEN),
        ("draft", Command.CANCEL),
        ("open", Command.ANNOUNCE),
        ("open", Command.CANCEL),
        ("announced", Command.CANCEL),
        ("settled", Command.CANCEL),
        ("signed", Command.TRAIN),
    ],
)
@pytest.mark.parametrize(
    "items", [{}, {"vesting": "upfront"}, {"reward": "best", "max_reward": 20.0}], ids=str
)
def test_a_step_does_what_its_preview_said(trading, state, command, items):
    task = prepared(trading, state, **items)
    fund = trading.balance(FUND)
    said = seen(trading, task, command)
    assert not said.refusal
    assert seen(trading, task, command, OPERATOR if command is Command.CANCEL else BUYER) == said
    assert moved(trading, task, command) == (said.balance_after, said.escrow_after, fund)


@pytest.mark.slow
@pytest.mark.parametrize("unearned", ["fund", "refund", "share"])
def test_cancelling_a_training_brings_back_what_its_preview_said(trading, unearned):
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.in_training(owners, unearned=unearned, rounds=4)
    task = trading.trained(owners, task, absent={(0, 0), (1, 2)}, until=2)
    fund = trading.balance(FUND)
    said, known = (seen(trading, task, Command.CANCEL, who) for who in (BUYER, OPERATOR))
    assert (known.escrow_after, len(known.moves)) == (0, 1 if unearned == "refund" else 2)
    buyer, left, in_fund = moved(trading, task, Command.CANCEL)
    assert left == 0
    rounding = 2 * len(owners)  # each earned amount is a floor
    assert known.balance_after == pytest.approx(buyer, abs=rounding)
    to_fund = sum(move.micro for move in known.moves if move.credit == "fund")
    assert to_fund == pytest.approx(in_fund - fund, abs=rounding)
    # What was not delivered would tell a buyer somebody's pay: it hears of the rounds to come.
    half = task.reward // 2
    assert [(move.debit, move.micro) for move in said.moves] == [("escrow", half)]
    assert (said.escrow, said.escrow_after) == (half, 0)
    if unearned == "refund":
        assert said.balance_after < buyer - rounding
    else:
        assert said.balance_after == pytest.approx(buyer, abs=rounding)


def test_who_answered_does_not_change_a_preview(trading):
    owners = trading.owners(1.0, 1.1, 1.2)
    task, other = (trading.in_training(owners, rounds=4) for _ in range(2))
    task = trading.trained(owners, task, until=2)
    before = seen(trading, task, Command.CANCEL)
    trading.update(owners[0], task)
    assert seen(trading, task, Command.CANCEL) == before
    other = trading.trained(owners, other, absent={(0, 0), (1, 2)}, until=2)
    assert seen(trading, other, Command.CANCEL).moves == before.moves


@pytest.mark.parametrize(
    ("state", "command", "why"),
    [
        ("draft", Command.ANNOUNCE, "announce needs a task that is open"),
        ("settled", Command.TRAIN, "3 owners have neither signed nor declined"),
        ("completed", Command.CANCEL, "completed"),
    ],
)
def test_what_cannot_be_done_says_why_and_moves_nothing(trading, state, command, why):
    said = seen(trading, prepared(trading, state), command)
    assert why in said.refusal
    assert (said.moves, said.balance, said.escrow) == ((), said.balance_after, said.escrow_after)


def test_a_poor_buyer_is_told_what_is_missing(trading):
    task = prepared(trading, "draft", reward=91.0)
    assert "reserves its whole reward, 91.000000 credits; buyer:acme has 90.000000" in (
        seen(trading, task, Command.OPEN).refusal
    )
