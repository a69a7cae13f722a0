"""The table of a task's life, and the commands that keep to it."""

import itertools

import pytest

from fedbourse.errors import Conflict, FedbourseError, NotAllowed, NotFound
from fedbourse.market import price_discovery, updates
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.commands import training as training_commands
from fedbourse.market.lifecycle import ACTIVE, ENDED, LIFE, Command, after, diagram
from fedbourse.market.parties import MARKET, Caller
from fedbourse.market.records import State
from fedbourse.market.service import show
from fedbourse.market.views import View
from fedbourse.testing.trading import AUDITOR, BUYER, OPERATOR, Trading, caller, card

ROLES = ("buyer", "operator", "owner", "market")
OTHER_BUYER = caller("buyer:other")


@pytest.mark.parametrize(
    ("state", "command", "role"), list(itertools.product(State, Command, ROLES)), ids=str
)
def test_what_the_table_does_not_say_is_refused(state, command, role) -> None:
    rule = LIFE.get((state, command))
    if rule is None:
        with pytest.raises(Conflict, match=f"it is {state.value}"):
            after(state, command, by=role)
    elif role not in rule.by:
        with pytest.raises(NotAllowed, match=f"the caller is {role}"):
            after(state, command, by=role)
    else:
        assert after(state, command, by=role) is rule.next


def test_every_life_can_end_and_nothing_follows_an_end() -> None:
    assert {state for state, _ in LIFE} == set(State) - ENDED
    assert all((state, Command.CANCEL) in LIFE for state in State if state not in ENDED)
    assert set(ACTIVE) == set(State) - ENDED - {State.DRAFT}
    reached = {State.DRAFT}
    for _ in State:
        reached |= {rule.next for (state, _), rule in LIFE.items() if state in reached}
    assert reached == set(State)


def test_nobody_settles_or_discovers_again_but_the_market() -> None:
    for command in (Command.TICK, Command.SETTLE, Command.RESTART):
        assert {rule.by for (_, each), rule in LIFE.items() if each is command} == {("market",)}


def test_the_diagram_shows_the_whole_table() -> None:
    assert diagram().count("-->") == len(LIFE) + 1 + len(ENDED)


@pytest.fixture(scope="module")
def lives(sqlite_template, tmp_path_factory):
    """A market with one task in each state, and what belongs to them."""
    import shutil

    from fedbourse.storage import SqlStore

    file = shutil.copy(sqlite_template, tmp_path_factory.mktemp("lives") / "market.db")
    with SqlStore(f"sqlite:///{file}") as store:
        trading = Trading(store)
        owners = trading.owners(1.0, 1.1, 1.2)
        trading.fund(200_000_000)
        tasks = {
            State.DRAFT: trading.do(buyer_commands.create, BUYER, card()),
            State.OPEN: trading.opened(),
            State.ANNOUNCED: trading.announced(owners),
            State.SETTLED: trading.settled(owners),
            State.TRAINING: trading.in_training(owners),
            State.COMPLETED: trading.completed(owners),
        }
        cancelled = trading.opened()
        tasks[State.CANCELLED] = trading.do(buyer_commands.cancel, BUYER, cancelled.id)
        for state, task in tasks.items():
            assert trading.task(task.id).state is state
        yield trading, owners, tasks


def carry_out(trading, who, task, command) -> None:
    """Try the command itself, as well formed as it can be."""
    with trading.store.begin() as tx:
        COMMANDS[command](task, trading.market, tx, who, task.id)


def _plan(task, *base) -> None:
    owner_commands.submit_plan(*base, tick=task.tick, budget=1.0, previous=task.offer)


COMMANDS = {
    Command.OPEN: lambda task, *base: buyer_commands.open_task(*base),
    Command.ANNOUNCE: lambda task, *base: buyer_commands.announce(*base),
    Command.TRAIN: lambda task, *base: training_commands.start(*base),
    Command.CANCEL: lambda task, *base: buyer_commands.cancel(*base),
    Command.INTEREST: lambda task, *base: owner_commands.register_interest(
        *base, value=None, previous=task.card.digest
    ),
    Command.PLAN: _plan,
    Command.LEAVE: lambda task, *base: owner_commands.leave_task(*base),
    Command.DECIDE: lambda task, *base: owner_commands.decide(
        *base, accept=False, terms_digest="", signature=None
    ),
    Command.UPDATE: lambda task, *base: updates.accept_update(
        *base, round=task.round + 9, body=bytes(24)
    ),
    Command.TICK: lambda task, market, tx, *_: price_discovery.close_tick(market, tx, task.id),
    Command.RESTART: lambda task, market, tx, *_: price_discovery.restart(market, tx, task.id),
    Command.CLOSE_ROUND: lambda task, market, tx, *_: training_commands.close_round(
        market, tx, task.id
    ),
}
WITHIN_OTHERS = set(Command) - set(COMMANDS)  # settle, complete: the clock's parts of others
THE_MARKET_S = {*WITHIN_OTHERS, Command.TICK, Command.RESTART, Command.CLOSE_ROUND}
OWNERS_COMMANDS = {Command.INTEREST, Command.PLAN, Command.DECIDE, Command.UPDATE}
CALLERS = {
    "buyer": BUYER,
    "operator": OPERATOR,
    "owner": caller("owner:000000", "0" * 16),
    "market": MARKET,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "command", "role"),
    [
        (state, command, role)
        for state, command, role in itertools.product(State, Command, ROLES)
        if command not in WITHIN_OTHERS
        and not (command in THE_MARKET_S and role != "market")
        and role not in LIFE.get((state, command), ((), state))[0]
    ],
    ids=str,
)
def test_commands_keep_to_the_table(lives, state, command, role) -> None:
    trading, _owners, tasks = lives
    task = trading.task(tasks[state].id)
    with pytest.raises((Conflict, NotAllowed, NotFound)):
        carry_out(trading, CALLERS[role], task, command)
    assert trading.task(task.id) == task


@pytest.mark.parametrize("who", [OTHER_BUYER, AUDITOR, Caller("buyer:acme", frozenset())], ids=str)
@pytest.mark.parametrize("command", [c for c in Command if c not in THE_MARKET_S], ids=str)
@pytest.mark.parametrize("state", list(State), ids=str)
def test_strangers_change_nothing(lives, state, command, who) -> None:
    trading, _owners, tasks = lives
    task = trading.task(tasks[state].id)
    with pytest.raises(FedbourseError):
        carry_out(trading, who, task, command)
    assert trading.task(task.id) == task


@pytest.mark.parametrize(
    ("state", "command"), [pair for pair in LIFE if pair[1] in OWNERS_COMMANDS], ids=str
)
def test_a_bearer_token_without_a_device_does_nothing_for_an_owner(lives, state, command) -> None:
    trading, owners, tasks = lives
    task = trading.task(tasks[state].id)
    with pytest.raises(NotAllowed, match="signed by the owner's device"):
        carry_out(trading, caller(owners[0].name), task, command)


@pytest.mark.parametrize("who", [None, OTHER_BUYER, caller("owner:000000", "0" * 16)], ids=str)
def test_a_draft_is_invisible_to_others(lives, who) -> None:
    trading, _owners, tasks = lives
    task = trading.task(tasks[State.DRAFT].id)
    with pytest.raises(NotFound, match="there is no task"):
        show(task, who)
    if who is not None:
        for command in (Command.OPEN, Command.CANCEL, Command.INTEREST):
            with pytest.raises((NotFound, NotAllowed)):
                carry_out(trading, who, task, command)


@pytest.mark.parametrize("who", [BUYER, OPERATOR, AUDITOR, MARKET], ids=str)
def test_a_draft_is_shown_to_those_it_concerns(lives, who) -> None:
    trading, _owners, tasks = lives
    assert show(trading.task(tasks[State.DRAFT].id), who).state is State.DRAFT


def test_only_a_buyer_makes_tasks(lives) -> None:
    trading, owners, _tasks = lives
    for who in (OPERATOR, AUDITOR, owners[0].caller):
        with pytest.raises(NotAllowed):
            trading.do(buyer_commands.create, who, card())
    with pytest.raises(NotAllowed, match="a task belongs to a buyer"):
        trading.do(buyer_commands.create, Caller("operator:main", frozenset({"buyer"})), card())


def test_views_are_for_those_they_are_meant_for(lives) -> None:
    trading, owners, tasks = lives
    done = tasks[State.COMPLETED].id
    refused = {
        "report": (View.report, [OTHER_BUYER, owners[0].caller], {}),
        "model": (View.model, [OTHER_BUYER, owners[0].caller, AUDITOR], {}),
        "allocations": (View.everybody, [BUYER, owners[0].caller], {"after": "", "limit": 9}),
        "proof": (View.proof, [BUYER, AUDITOR], {}),
        "query": (View.round_request, [BUYER, AUDITOR], {"after": -1}),
    }
    for view, callers, options in refused.values():
        for who in callers:
            with pytest.raises((NotAllowed, NotFound)):
                trading.see(view, who, done, **options)
