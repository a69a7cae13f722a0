"""The report of an ended task is made once for all who see the same, and nobody sees more by it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from itertools import permutations

import pytest

from fedbourse.dashboard.report_pages import served_report
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.parties import Caller
from fedbourse.market.views import View
from fedbourse.report import trade_body
from fedbourse.web.heavy import HeavyWork
from fedbourse.web.report_cache import ReportCache

SHARED = ("stranger", "buyer", "another buyer", "another owner's token")
OWN = ("owner's token", "auditor", "operator", "buyer who only reads")
SCOPES = {"buyer who only reads": "auditor"}


class Turns(HeavyWork):
    """Turns that are counted, and always free."""

    def __init__(self):
        self.taken = 0

    @contextmanager
    def turn(self, key, *, authenticated):
        self.taken += 1
        yield


@pytest.fixture
def turns(town):
    counted = Turns()
    town.app.state.service = replace(town.app.state.service, heavy=counted)
    return counted


def ask(client, town, who, task=None):
    """Return the report on the page that somebody sees."""
    person = town.people[who]
    client.cookies.clear()
    if person.token:
        assert town.sign_in(client, person).status_code == 303
    answer = client.get(f"/tasks/{(task or town.completed).id}/report")
    assert answer.status_code == 200
    return answer.text.partition('<div class="report">\n')[2].partition("\n</div>\n</main>")[0]


def seen_by(town, who):
    """Return the report as a view of somebody gives it, without any cache."""
    person, caller = town.people[who], None
    if person.party:
        scope = SCOPES.get(who, person.party.partition(":")[0])
        caller = Caller(person.party, frozenset({scope}), None)
    with town.store.read() as tx:
        return str(trade_body(served_report(View(town.market, tx, caller), town.completed.id)))


def test_whoever_asks_first_everybody_sees_what_a_view_shows_them(client, town):
    expected = {who: seen_by(town, who).strip() for who in (*SHARED, *OWN)}
    public = expected["stranger"]
    assert all((expected[who] == public) == (who in SHARED) for who in expected)
    for first, then in permutations(("stranger", "buyer", "owner's token", "operator"), 2):
        town.app.state.service = replace(town.app.state.service, reports=ReportCache())
        assert ask(client, town, first).strip() == expected[first]
        assert ask(client, town, then).strip() == expected[then], (first, then)
    town.app.state.service = replace(town.app.state.service, reports=ReportCache())
    for who in (*OWN, *SHARED, *OWN):
        assert ask(client, town, who).strip() == expected[who], who


def test_nothing_is_kept_of_what_only_some_may_see(client, town):
    reports = town.app.state.service.reports
    for who in OWN:
        ask(client, town, who)
        assert len(reports) == 0
    for who in SHARED:
        ask(client, town, who)
        assert len(reports) == 1
    kept = reports.find(town.completed)
    assert not [owner.name for owner in town.owners if owner.name in kept]
    assert not [secret for secret in town.secrets_of("") if secret in kept]


def test_the_second_ask_takes_no_turn(client, town, turns):
    ask(client, town, "stranger")
    assert turns.taken == 1
    for who in (*SHARED, *SHARED):
        ask(client, town, who)
    assert turns.taken == 1
    for count, who in enumerate((*OWN, *OWN), start=2):
        ask(client, town, who)
        assert turns.taken == count


def test_a_task_that_has_not_ended_takes_no_turn_and_is_not_kept(client, town, turns):
    for task in (town.training, town.announced):
        assert client.get(f"/tasks/{task.id}/report").status_code == 409
    assert client.get(f"/tasks/{town.draft.id}/report").status_code == 404
    assert (turns.taken, len(town.app.state.service.reports)) == (0, 0)
    with pytest.raises(ValueError, match="only a task that has ended is cached"):
        town.app.state.service.reports.keep(town.training, "a report")


def test_what_an_owner_erases_later_was_never_in_it(client, town):
    before = ask(client, town, "stranger")
    town.trading.do(owner_commands.erase, town.ann.caller, town.completed.id)
    assert ask(client, town, "stranger") == before
    assert before.strip() == seen_by(town, "stranger").strip()


def test_a_cache_holds_the_reports_that_were_asked_for_last(town):
    first, second, third = (replace(town.completed, id=f"{n:024x}") for n in range(3))
    cache = ReportCache(reports_max=2, characters_max=100)
    cache.keep(first, "1")
    cache.keep(second, "2")
    assert cache.find(first) == "1"
    cache.keep(third, "3")
    assert [cache.find(task) for task in (first, second, third)] == ["1", None, "3"]
    cache.keep(first, "x" * 99)
    assert [cache.find(task) for task in (first, third)] == ["x" * 99, "3"]
    cache.keep(third, "33")
    assert [cache.find(task) for task in (first, third)] == [None, "33"]
    cache.keep(first, "x" * 101)
    assert len(cache) == 0


def test_a_report_is_found_under_the_very_log_that_it_tells_of(town):
    cache = ReportCache()
    cache.keep(town.completed, "a report")
    assert cache.find(town.completed) == "a report"
    assert cache.find(replace(town.completed, last_hash="0" * 64)) is None
