"""A task that sells equal lots by the clock, on its pages."""

import html

LOT = 0.5
CLOCK = {"compensation": "clock", "min_budget": LOT, "max_rho": LOT}


def text_of(client, path) -> str:
    shown = client.get(path)
    assert shown.status_code == 200
    return html.unescape(" ".join(shown.text.split()))


def test_the_card_says_what_is_sold_and_where_the_rest_goes(client, town):
    task = town.trading.opened(**CLOCK)
    text = text_of(client, f"/tasks/{task.id}")
    assert "clock <small>all sell the same budget" in text
    assert "it pays for as many lots of 0.5 rho as it can, and the rest goes to the fund" in text
    assert "everybody sells the same lot or nothing" in text.lower()


def test_an_owner_is_told_the_price_and_what_is_best(client, town):
    task = town.trading.opened(**CLOCK)
    text = text_of(client, f"/tasks/{task.id}/earn")
    assert "starts at 5 credits" in text
    assert "Your device stays while that is more than 0.5 times your value" in text
    assert "earn.js" not in text
    task = town.trading.announced(town.owners, **CLOCK)
    assert "It is now 5 credits" in text_of(client, f"/tasks/{task.id}/earn")


def test_a_task_that_a_clock_settled_has_its_pages(client, town):
    task = town.trading.completed(town.owners, rounds=1, **CLOCK)
    for page in ("", "/report"):
        assert "lots" in text_of(client, f"/tasks/{task.id}{page}") or page
