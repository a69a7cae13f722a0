"""The whole way of a buyer, with real devices, watched live in a real browser.

The market is a process of its own that is killed on the way, as are devices: a device that is away
keeps a round open, so that the browser can be asked about a training that pauses.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import numpy as np
import pytest

from dashboard.conftest import SCREENSHOTS
from fedbourse.dashboard import pages
from fedbourse.learning.models import model_named
from fedbourse.learning.records import Records
from fedbourse.testing.e2e import device_process, market_process
from fedbourse.testing.e2e.device_process import records
from fedbourse.testing.e2e.forks import start_forks
from fedbourse.testing.e2e.network import Network
from fedbourse.testing.e2e.supervised import Supervised
from web.fixtures import Person

OWNERS, ROUNDS = 3, 40
_AWAY = r"ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET"


@pytest.fixture
def market(tmp_path):
    """A market's server in a process of its own."""
    with start_forks(market_process) as forks:
        yield Supervised(forks, tmp_path / "market")


@pytest.fixture
def network(market):
    """Its buyer and three devices, not started yet."""
    with start_forks(device_process) as forks:
        found = Network(market, forks, owners=OWNERS)
        yield found
        found.close()


@pytest.fixture
def address(market):
    return market.url


@pytest.fixture
def buyer(network):
    made = network.operator.post("/v1/tokens", {"party": "buyer:acme", "scopes": ["buyer"]})
    return Person("buyer:acme", token=made["token"])


def own_records():
    """Return records of the buyer's own as a file, and as the market's models take them."""
    features, labels = records(77)
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["x", "kind"])
    for feature, label in zip(features[:, 0], labels, strict=True):
        rows.writerow([repr(float(feature)), int(label)])
    ready = np.column_stack([features, np.ones(len(features))])
    return text.getvalue(), Records(ready, labels, 2)


def write_card(page):
    page.goto("/buy")
    page.get_by_role("link", name="New task").click()
    for label, text in {
        "Goal": "Tell two kinds of things apart.",
        "Category of data": "A record is a thing: a number and its kind.",
        "Features": "2",
        "Rounds (T)": str(ROUNDS),
        "Records of each owner (m)": "50",
        "Step size": "0.5",
        "Total reward (R)": "3",
        "Owners": str(OWNERS),
        "Each round": "25 s",
    }.items():
        page.get_by_label(label, exact=True).fill(text)
    page.get_by_text("Aggregation, largest budget").click()
    page.get_by_label("Largest budget a plan may offer").fill("100")
    page.get_by_text("Each tick").first.click()
    page.get_by_label("Each tick").fill("20 s")
    page.get_by_label("Review").fill("15 s")
    page.get_by_role("button", name="Create the draft").click()
    page.get_by_role("heading", name="Your next step").wait_for()
    return page.url.rpartition("/")[2]


def take(page, step, confirm):
    """Take a step: look at what it moves, and confirm it."""
    page.get_by_role("link", name=step).click()
    page.get_by_role("heading", name="The money").wait_for()
    seen = page.locator("main").inner_text()
    page.get_by_role("button", name=confirm).click()
    page.get_by_role("heading", name="The card").wait_for()
    return seen


def join(network, task):
    """Let all devices take part in a task that was published by hand."""
    network.tasks.append(task)
    for device in network.devices:
        device.life = replace(device.life, tasks=tuple(network.tasks))
        device.done = False


def reload_until(page, words):
    """Load a page again until it says something that no event tells of."""
    for _ in range(200):
        if page.get_by_text(words).count():
            return
        page.wait_for_timeout(200)
        page.reload()
    raise AssertionError(f"the page never said {words!r}: {page.locator('main').inner_text()}")


def closed(page):
    return int(page.locator("#rounds-closed").inner_text())


def until_closed(page, count):
    page.wait_for_function(
        "(count) => Number(document.querySelector('#rounds-closed')?.innerText) >= count",
        arg=count,
        timeout=60_000,
    )


def test_a_task_from_its_card_to_its_model_in_a_browser(visitor, market, network, buyer, axe):
    page = visitor(who=buyer)
    page.watch.expect(_AWAY)
    posted = []
    page.on("request", lambda request: posted.append(request.post_data or ""))
    task = settled_without_one(page, network)
    page.get_by_role("heading", name="Training").wait_for(timeout=60_000)
    text, own = own_records()
    page.locator("#records").set_input_files(
        {"name": "own.csv", "mimeType": "text/csv", "buffer": text.encode()}
    )
    page.get_by_text(re.compile(r"After \d+ rounds: accuracy")).wait_for()
    until_closed(page, 3)
    before = reloaded_in_training(page, network, task)
    server_restarted(page, market, before)
    check_page(page, axe, "live-desktop-light")
    phone = visitor("phone", dark=True, who=buyer)
    phone.watch.expect(_AWAY)
    phone.goto(f"/tasks/{task}")
    phone.get_by_text("live", exact=True).wait_for()
    check_page(phone, axe, "live-phone-dark")
    phone.close()

    network.until(lambda: network.task(task)["state"] == "completed")
    page.get_by_text("the model is trained and everybody is paid").wait_for()
    page.get_by_text(re.compile(f"After {ROUNDS} rounds: accuracy")).wait_for()
    assert closed(page) == ROUNDS
    check_page(page, axe, "live-completed-desktop-light")
    agrees(page, network, task, own)
    assert not [body for body in posted if text.splitlines()[1].partition(",")[0] in body]


def settled_without_one(page, network):
    """Write a card, publish it, announce it; a device that is away misses its tick."""
    task = write_card(page)
    seen = take(page, "Publish it", "Reserve the reward and publish the task")
    assert re.search(r"your account\s+→\s*to\s+escrow of this task\s+3 credits", seen), seen
    assert re.search(r"Your account\s+1,000\s+997", seen), seen
    join(network, task)
    network.tend()
    reload_until(page, f"{OWNERS} of at least 2 owners are interested")
    network.kill(network.devices[2])
    assert "No money moves" in take(page, "Announce the reward", "Announce the reward")
    reload_until(page, "2 of 3 devices have replied to tick 0")
    page.get_by_text("1 out: 1 missed a tick").wait_for(timeout=60_000)
    # Both owners sign; the page follows by itself, and the buyer need not wait.
    page.get_by_text("you may still cancel").first.wait_for(timeout=60_000)
    seen = take(page, "Start training", "Start training")
    assert "This ends the time for review" in seen
    assert "2 owners have signed" in seen
    return task


def reloaded_in_training(page, network, task):
    """Let training pause, load the page again, and return how many rounds it shows."""
    network.kill(network.devices[1])
    page.wait_for_timeout(1500)
    before = network.task(task)["round"]
    assert 0 < before < ROUNDS
    until_closed(page, before)
    page.reload()
    page.get_by_text("live", exact=True).wait_for()
    assert closed(page) == before
    assert len(page.locator("#live").get_attribute("data-updates").split(",")) == before
    page.get_by_text(re.compile(f"After {before} rounds: accuracy")).wait_for()
    assert page.locator("#evaluated canvas").bounding_box()["width"] > 200
    return before


def server_restarted(page, market, before):
    """Kill the server and start it again: the page says so, and takes up the events."""
    market.kill()
    page.get_by_text("reconnecting").wait_for()
    market.start()
    page.get_by_text("live", exact=True).wait_for(timeout=30_000)
    until_closed(page, before + 1)  # without the device that is away
    page.locator("#live-figures div", has_text="missing so far").get_by_text("1").wait_for()


def check_page(page, axe, name):
    axe(page)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


def agrees(page, network, task, own):
    """The money on the page is the market's; what the browser measured is what the model is."""
    paid = network.buyer.get(f"/v1/tasks/{task}/report")["money_micro"]["earned"] / 1e6
    assert float(page.locator("#paid").inner_text()) == pytest.approx(paid)
    assert page.locator("#in-escrow").inner_text() == "0"
    model = np.frombuffer(network.buyer.get_bytes(f"/v1/tasks/{task}/model"), "<f8")
    logistic = model_named("logistic", features=2, classes=2)
    said = page.locator("#records-status").inner_text()
    assert f"accuracy {100 * logistic.accuracy(model, own):.1f} %" in said
    loss = float(said.rpartition("loss ")[2].rstrip("."))
    assert loss == pytest.approx(logistic.loss(model, own), rel=1e-3)


def test_the_browser_measures_as_the_market_does(visitor, network):
    page = visitor()
    page.goto("/")
    page.add_script_tag(url=pages.LOOK.files.url("evaluation.js"))
    rng = np.random.default_rng(4)
    for name, classes in (
        ("logistic", 2),
        ("least-squares", 0),
        ("least-squares", 2),
        ("softmax", 3),
        ("hidden:5", 3),
    ):
        features = np.column_stack([rng.normal(size=(30, 3)), np.ones(30)])
        labels = rng.integers(0, classes, 30).astype(float) if classes else rng.normal(size=30)
        model = model_named(name, features=4, classes=classes)
        parameters = rng.normal(size=model.dimension)
        found = page.evaluate(
            "([parameters, records, card]) => evaluation.measure(parameters, records, card)",
            [
                parameters.tolist(),
                {"features": features.tolist(), "labels": labels.tolist()},
                {"model": name, "features": 4, "classes": classes},
            ],
        )
        own = Records(features, labels, classes)
        assert found["loss"] == pytest.approx(model.loss(parameters, own))
        assert found["accuracy"] == pytest.approx(model.accuracy(parameters, own))
