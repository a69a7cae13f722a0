"""The page of a task that ends while somebody looks at it, and charts that have nothing to show."""

from __future__ import annotations

import re

_TRAINED = "the model is trained and everybody is paid"
_FAILED = r"ERR_FAILED"


def ended(page, town, task):
    """Wait until the page shows the task's end by itself, in all its parts."""
    page.get_by_text(_TRAINED).wait_for()
    page.get_by_role("link", name="Report of the trade").wait_for()
    page.wait_for_function(
        "(count) => document.querySelector('#rounds-closed')?.innerText === count",
        arg=str(task.card.rounds),
    )
    last = town.trading.task(task.id).last_hash
    page.wait_for_function(
        "(hash) => document.querySelector('.task-card').textContent.includes(hash)", arg=last
    )


def test_a_page_shows_the_end_though_its_first_look_at_it_failed(visitor, town):
    task = town.training
    page = visitor(who=town.buyer)
    page.watch.expect(_FAILED)
    page.goto(f"/tasks/{task.id}")
    page.get_by_text("live", exact=True).wait_for()
    # Nothing is closed yet: no bars, and no words about their colours.
    assert not page.locator("#updates-chart").is_visible()
    page.route(re.compile(f"/tasks/{task.id}(/live)?$"), lambda route: route.abort(), times=2)
    town.trading.trained(town.owners, task)
    ended(page, town, task)
    assert page.locator("#updates-chart .legend").is_visible()


def test_an_end_that_came_while_the_page_was_fetched_is_not_missed(visitor, town):
    task = town.reviewed
    page = visitor(who=town.buyer)
    page.goto(f"/tasks/{task.id}")
    page.get_by_text("you may still cancel").first.wait_for()

    def finish(route):
        """Let the whole training happen before the page of its beginning is answered."""
        current = town.trading.task(task.id)
        if current.state.value == "training":
            town.trading.trained(town.owners, current)
        route.continue_()

    page.route(re.compile(f"/tasks/{task.id}$"), finish)
    town.trading.wait(task.card.deadlines.review_s)
    town.trading.advance()
    ended(page, town, task)
