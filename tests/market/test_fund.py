"""The fund of unearned pay: money goes in by the rule, and nobody takes any out."""

import inspect
import itertools
from contextlib import suppress
from types import SimpleNamespace

import pytest

from fedbourse.errors import FedbourseError, InvalidInput, NotAllowed
from fedbourse.game.price_discovery import PriceDiscovery
from fedbourse.market import documents, monitoring, price_discovery, unearned, updates
from fedbourse.market.commands import access, accounts, payouts, scheduler
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.commands import training as training_commands
from fedbourse.market.parties import MARKET, SCOPES, Caller, party
from fedbourse.market.records import State
from fedbourse.market.service import FUND, Market
from fedbourse.market.views import View
from fedbourse.testing.trading import AUDITOR, BUYER, OPERATOR, Trading, card, noise
from market.life_invariants import sqlite_stores

COMMANDS = {
    f"{module.__name__.rpartition('.')[2]}.{name}": function
    for module in (
        access,
        accounts,
        updates,
        buyer_commands,
        scheduler,
        monitoring,
        payouts,
        price_discovery,
        owner_commands,
        training_commands,
        unearned,
        documents,
    )
    for name, function in vars(module).items()
    if inspect.isfunction(function)
    and function.__module__ == module.__name__
    and not name.startswith("_")
    and {"market", "tx"} <= set(inspect.signature(function).parameters)
}
"""All that anybody can have done to a market: whatever takes a market and a transaction."""


@pytest.fixture(scope="module")
def world(sqlite_template):
    """A market whose fund holds something, with a task in every state."""
    with sqlite_stores(sqlite_template)() as store:
        trading = Trading(store)
        trading.fund(90_000_000)
        owners = trading.owners(1.0, 1.1, 1.2)
        absent = {(number, 0) for number in range(4)}
        tasks = [
            trading.completed(owners, absent=absent),
            trading.trained(owners, trading.in_training(owners), absent={(0, 1)}, until=1),
            trading.do(buyer_commands.create, BUYER, card()),
            trading.opened(),
            trading.announced(owners),
            trading.settled(owners),
        ]
        assert {trading.task(task.id).state for task in tasks} == set(State) - {State.CANCELLED}
        yield trading, owners, [trading.task(task.id) for task in tasks]


class Undo(Exception):
    """What was tried is to be undone."""


def arguments(parameters, trading, who, task, owners) -> dict:
    """What a command may be given that aims at the fund; every parameter has to be known here."""
    body = noise(task, 1.0, "x")
    known = {
        "market": trading.market,
        "caller": who,
        "task_id": task.id,
        "task": task,
        "card": task.card,
        "received": accounts.Received("one", FUND, 5),
        "payout_id": "0" * 24,
        "inquiry": payouts.Inquiry(0, paid=False),
        "account": FUND,
        "holder": FUND,
        "owner": FUND,
        "scopes": list(SCOPES),
        "discovery": PriceDiscovery.start(total_budget=1.0),
        "total": task.total_budget or 1.0,
        "allocation": next(iter(trading.allocations(task.id)), None),
        "amount_micro": 1,
        "destination": "iban",
        "reason": "late",
        "tick": task.tick,
        "budget": 1.0,
        "value": 1.0,
        "previous": task.offer or task.card.digest,
        "round": task.round,
        "body": body,
        "content": body,
        "accept": False,
        "terms_digest": "",
        "signature": "",
        "closed_rounds": task.round,
        "extra": {},
        "token_id": FUND,
        "token": FUND,
        "device": FUND,
        "public_key": owners[0].key.public,
        "bearer": FUND,
        "key_id": FUND,
    }
    return {
        name: known[name]
        for name, parameter in parameters.items()
        if name != "tx" and (name in known or parameter.default is inspect.Parameter.empty)
    }


def callers(owners) -> list[Caller]:
    everything = frozenset(SCOPES)
    return [
        BUYER,
        OPERATOR,
        AUDITOR,
        MARKET,
        owners[0].caller,
        Caller(OPERATOR.party, everything),
        Caller(FUND, everything),  # nobody can be it; and if somebody could
    ]


def debits(tx) -> list:
    return [entry for entry in tx.entries(account=FUND, limit=10_000) if entry.debit == FUND]


def test_there_are_commands_of_every_kind() -> None:
    assert len(COMMANDS) > 25
    for name in ("payouts.request", "buyer.cancel", "owner.submit_plan", "scheduler.move_on"):
        assert name in COMMANDS


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_no_command_debits_the_fund(world, name) -> None:
    trading, owners, tasks = world
    command = COMMANDS[name]
    parameters = inspect.signature(command).parameters
    held = trading.balance(FUND)
    assert held > 0
    for who, task in itertools.product(callers(owners), tasks):
        options = arguments(parameters, trading, who, task, owners)
        with suppress(Undo), trading.store.begin() as tx:
            with suppress(FedbourseError, AssertionError), tx.savepoint():
                command(**options, tx=tx)
            assert debits(tx) == []
            assert tx.balance(FUND) >= held
            raise Undo
    assert trading.balance(FUND) == held


def test_a_command_that_debits_the_fund_would_be_seen(world) -> None:
    trading, _, _ = world
    with suppress(Undo), trading.store.begin() as tx:
        trading.market.pay(tx, "stolen", (FUND, BUYER.party), 1, "")
        assert len(debits(tx)) == 1
        raise Undo
    with trading.store.read() as tx:
        assert debits(tx) == []


def test_nobody_can_be_the_fund(world) -> None:
    trading, _, _ = world
    with pytest.raises(InvalidInput, match="a party is"):
        party(FUND)
    for command, options in (
        (access.issue_token, {"holder": FUND, "scopes": ["buyer"]}),
        (access.issue_enrolment, {"owner": FUND}),
    ):
        with pytest.raises(InvalidInput, match="a party is"):
            trading.do(command, OPERATOR, **options)
    with pytest.raises(NotAllowed, match="a task belongs to a buyer"):
        trading.do(buyer_commands.create, Caller(FUND, frozenset(SCOPES)), card())
    with pytest.raises(InvalidInput, match="a party is"):
        trading.do(
            payouts.request,
            Caller(FUND, frozenset(SCOPES)),
            account=FUND,
            amount_micro=1,
            destination="iban",
        )


def test_money_comes_into_the_fund_by_the_rule_alone(world) -> None:
    trading, _, tasks = world
    with trading.store.read() as tx:
        entries = tx.entries(account=FUND, limit=100)
    assert {entry.id for entry in entries} == {f"{tasks[0].id}/fund"}
    bank = SimpleNamespace(received=lambda reference: (FUND, 5))
    with pytest.raises(InvalidInput, match="a party is"):
        trading.do(accounts.deposit, OPERATOR, accounts.look_up(OPERATOR, bank, "one"))


def test_the_market_says_where_its_fund_pays_to(world) -> None:
    trading, _, _ = world
    assert trading.market.fund == {
        "account": FUND,
        "pays_to": "nobody yet: it stays in the account",
    }
    said = Market(trading.market.key, fund_pays_to="the library")
    assert said.fund["pays_to"] == "the library"


def test_everybody_sees_what_the_fund_holds(world) -> None:
    trading, owners, _ = world
    for who in callers(owners):
        assert trading.see(View.balance, who, FUND) == trading.balance(FUND)
