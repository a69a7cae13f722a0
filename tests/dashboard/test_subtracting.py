"""A buyer looks at everything between any two acts of owners, and learns nothing of a single one.

Two markets live the same life, but owners of one have other values, budgets or days off than those
of the other. All numbers that a buyer finds must be the same in both, on every page and route,
until a tick closes: then they tell sums over all owners, and nothing else. Within one market, what
changes between two looks must not be an owner's own number either.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import ExitStack, contextmanager
from itertools import product

import pytest

from dashboard.fixtures import Town
from fedbourse.dashboard import app as pages
from fedbourse.market import task_money, views
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.records import State
from fedbourse.storage import SqlStore
from fedbourse.testing.databases import fresh_url
from fedbourse.testing.trading import BUYER, card
from fedbourse.web import app as api
from web.clients import TestClient
from web.fixtures import asked, send

OWNERS = 6
ADDRESSES = [
    prefix + route.path  # type: ignore[attr-defined]
    for prefix, routers in (("/v1", api.ROUTERS), ("", pages.ROUTERS))
    for router in routers
    for route in router.routes
    # A stream gives the events that /events lists, and does not end; the form of a new card says
    # what the form itself supposes, at length.
    if "GET" in route.methods and not route.path.endswith(("/stream", "/buy/new"))  # type: ignore[attr-defined]
]
REWARDS = "rewards=1,2.5"
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)")
_NAMES = re.compile(
    r"(?=[\w-]*[A-Za-z])[\w-]{16,}|https?:\S+|20\d\d-\d\d-\d\dT?[\d:.Z]*|Computed in \d+ ms"
)
"""Hashes, keys and moments, which differ between any two markets."""


class Watched:
    """A market with one task, and its buyer, who looks at all there is."""

    def __init__(self, store, values, opened, **items):
        self.town = Town(store)
        self.trading = self.town.trading
        self.owners = self.trading.owners(*values)
        self.task = self.trading.do(buyer_commands.create, BUYER, card(**items))
        # Entered, it keeps one event loop; else it starts one for each of thousands of requests.
        self.client = opened.enter_context(
            TestClient(self.town.app, base_url="http://testserver", follow_redirects=False)
        )
        self.look_as(self.town.buyer)

    def look_as(self, person):
        """Let somebody else look."""
        self.person = person
        self.client.cookies.clear()
        assert self.town.sign_in(self.client, person).status_code == 303

    def now(self):
        return self.trading.task(self.task.id)

    def paths(self):
        """Return every address that can be looked at, with every name that a buyer can guess."""
        accounts = [BUYER.party, f"escrow:{self.task.id}", "fund", *(o.name for o in self.owners)]
        names = {
            "task": [self.task.id],
            "step": ["open", "announce", "train", "cancel"],
            "party": accounts,
            "number": ["0", "1"],
        }
        for address in ADDRESSES:
            keys = re.findall(r"{(\w+)", address)
            for chosen in product(*(names[key] for key in keys)):
                path = address
                for key, value in zip(keys, chosen, strict=True):
                    path = path.replace(f"{{{key}}}", value)
                yield path

    def observe(self):
        """Return the numbers at every address, by what stands for the address in both markets."""
        seen = {}
        for path in self.paths():
            if path.startswith("/v1/"):
                query = REWARDS if path.endswith("/what-if") else ""
                request = asked(self.person, "GET", path, query=query, now_ms=self.trading.time_ms)
                answer = send(self.client, request)
            else:
                answer = self.client.get(path)
            assert answer.status_code < 500, (path, answer.text)
            kind = answer.headers.get("content-type", "")
            said = answer.text if "text" in kind or "json" in kind else ""
            numbers = Counter(_NUMBER.findall(_NAMES.sub(" ", said)))
            seen[path.replace(self.task.id, "TASK")] = (answer.status_code, numbers)
        return seen

    # What owners do, one at a time.

    def interest(self, owner, value):
        said = {"value": value, "previous": self.task.card.digest}
        self.trading.do(owner_commands.register_interest, owner.caller, self.task.id, **said)


def values_of(seed):
    return [1.0 + 0.013 * seed + 0.0171717 * place for place in range(OWNERS)]


@contextmanager
def markets(request, *values, **items):
    """Open a market for each list of values."""
    with ExitStack() as opened:
        made = []
        for each in values:
            url = opened.enter_context(fresh_url("sqlite", request))
            store = opened.enter_context(SqlStore(url))
            made.append(Watched(store, each, opened, **items))
        yield made


@pytest.fixture
def pair(request):
    """Two markets whose owners have other values."""
    items = {"reward": "best-reported", "max_reward": 20.0, "rounds": 4}
    with markets(request, values_of(1), values_of(2), **items) as made:
        yield made


@pytest.fixture
def twins(request):
    """Two markets with the same owners."""
    with markets(request, values_of(1), values_of(1)) as made:
        yield made


def differences(pair, *, but=()):
    """Return the addresses at which the two buyers see other numbers."""
    one, other = (each.observe() for each in pair)
    assert set(one) == set(other)
    assert sum(status == 200 for status, _ in one.values()) > 20
    return {path for path in one if one[path] != other[path] and not path.endswith(but)}


def lives(pair):
    """Carry both markets from the draft to the last round; yield after every act of an owner.

    What is yielded is the endings of addresses that may tell sums over five owners or more.
    """
    for each in pair:
        each.trading.do(buyer_commands.open_task, BUYER, each.task.id, confirm_upfront=True)
    for place in range(OWNERS):
        for each in pair:
            each.interest(each.owners[place], each.owners[place].value)
        yield ("/what-if",) if place >= 4 else ()
    for each in pair:
        each.task = each.trading.do(buyer_commands.announce, BUYER, each.task.id)


def test_nothing_of_a_single_owner_shows_while_values_are_told(pair):
    for but in lives(pair):
        assert not differences(pair, but=but)


def announced(each, **items):
    """Publish a task with a reward that is fixed, for which owners tell nothing."""
    each.task = each.trading.do(buyer_commands.create, BUYER, card(rounds=4, reward=10.0, **items))
    each.trading.do(buyer_commands.open_task, BUYER, each.task.id, confirm_upfront=True)
    for owner in each.owners:
        each.interest(owner, None)
    each.task = each.trading.do(buyer_commands.announce, BUYER, each.task.id)


def test_nothing_of_a_single_owner_shows_while_a_tick_is_open(pair):
    for each in pair:
        announced(each)
    for place in range(OWNERS):
        for each in pair:
            each.trading.plan(each.owners[place], each.now())
        assert not differences(pair)
    for each in pair:
        each.trading.advance()
    assert differences(pair)  # the sums of the tick that is closed


def in_training(pair):
    """Bring both markets to training, with the same owners."""
    for each in pair:
        announced(each)
        settled = each.trading.play(each.owners, each.task)
        each.task = each.trading.signed(each.owners, settled)
        assert each.task.state is State.TRAINING


def test_whose_answer_is_missing_does_not_show(twins):
    in_training(twins)
    for round in range(2):
        for place in range(OWNERS - 1):
            for each, absent in zip(twins, (round, OWNERS - 1 - round), strict=True):
                who = [owner for at, owner in enumerate(each.owners) if at != absent][place]
                each.trading.update(who, each.now())
            assert not differences(twins)
        for each in twins:
            each.trading.wait(each.task.card.deadlines.round_s)
            each.task = each.now()
        assert not differences(twins)


def test_no_difference_between_two_looks_is_an_owners_number(pair):
    market = pair[0]
    announced(market)
    told, before = set(), market.observe()

    def looked():
        nonlocal before
        after = market.observe()
        for path, (_, numbers) in after.items():
            came, went = numbers - before[path][1], before[path][1] - numbers
            for new in came:
                told.add(abs(_number(new)))
                told.update(abs(_number(new) - _number(old)) for old in went)
        before = after

    for owner in market.owners:
        market.trading.plan(owner, market.now())
        looked()
    market.trading.advance()
    looked()
    task = market.trading.play(market.owners, market.now())
    looked()
    for owner in market.owners:
        market.trading.decide(owner, task.id)
        looked()
    market.trading.advance()
    for place, owner in enumerate(market.owners):
        if place != 3:
            market.trading.update(owner, market.now())
            looked()
    market.trading.wait(task.card.deadlines.round_s)
    looked()
    secret = secrets_of(market)
    assert len(told) > 20
    assert not [found for found in told if any(_same(found, each) for each in secret)]


def secrets_of(market):
    """Return what nobody but an owner and the auditors should know, in every unit."""
    found = [owner.value for owner in market.owners]
    with market.trading.store.read() as tx:
        for line in tx.allocations(market.task.id):
            found += [line.budget, line.budget / 4, line.payment, line.payment / 4]
            found += [line.payment / 1e6, line.payment / 4e6]
        for owner in market.owners:
            found += [reply.budget for reply in tx.replies_of(market.task.id, owner.name)]
    return found


def _number(text):
    return float(text.replace(",", ""))


def _same(found, secret):
    return abs(found - secret) <= 2e-6 * secret


def real_balance(caller, task, held):
    return held


def sum_of_replies(self, task):
    with_budgets = [
        reply.budget
        for replies in self._tx.replies(
            task.id, [each.owner for each in self._tx.interests(task.id)]
        ).values()
        for reply in replies
        if reply.tick == task.tick
    ]
    return {"replies": sum(with_budgets), "asked": task.asked}


def test_a_market_that_shows_its_escrow_is_caught(twins, monkeypatch):
    monkeypatch.setattr(task_money, "_shown", real_balance)
    in_training(twins)
    for each, absent in zip(twins, (0, OWNERS - 1), strict=True):
        for place, owner in enumerate(each.owners):
            if place != absent:
                each.trading.update(owner, each.now())
        each.trading.wait(each.task.card.deadlines.round_s)
    assert {"/v1/accounts/escrow:TASK", "/tasks/TASK", "/buy"} <= differences(twins)


def test_a_page_that_shows_the_sum_so_far_is_caught(pair, monkeypatch):
    monkeypatch.setattr(views.View, "waited_for", sum_of_replies)
    for each in pair:
        announced(each)
        each.trading.plan(each.owners[0], each.now())
    assert "/tasks/TASK" in differences(pair)
