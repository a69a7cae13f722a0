"""A task recomputed from its records: what was tampered with is named, and nothing raises."""

import copy

import pytest

from fedbourse.market import buying, log, selling
from fedbourse.market.verify import verify_books, verify_task
from market.trading import AUDITOR, BUYER, Trading


@pytest.fixture(scope="module")
def trade(sqlite_template, tmp_path_factory):
    """A completed trade: one owner declined, one missed a round."""
    import shutil

    from fedbourse.storage import SqlStore

    file = shutil.copy(sqlite_template, tmp_path_factory.mktemp("verify") / "market.db")
    with SqlStore(f"sqlite:///{file}") as store:
        trading = Trading(store)
        owners = trading.owners(1.0, 1.1, 1.2, 1.3, 9.0)
        trading.fund(20_000_000)
        task = trading.settled(owners)
        for owner in owners[:4]:
            trading.decide(owner, task.id, accept=owner is not owners[1])
        trading.advance()
        task = trading.task(task.id)
        for number in range(task.card.rounds):
            for owner in (owners[0], owners[2], owners[3])[: 2 if number == 1 else 3]:
                trading.answer(owner, task)
            trading.wait(300)
            task = trading.task(task.id)
        yield trading, owners, task.id


@pytest.fixture
def records(trade) -> dict:
    trading, _owners, task_id = trade
    return trading.records(task_id, viewer=AUDITOR)


def failed(records) -> set[str]:
    return {check.name for check in verify_task(**records) if check.passed is False}


def event(records, kind) -> dict:
    return next(e for e in records["events"] if e["kind"] == kind)


def line(records, place=0) -> dict:
    return [owner["line"] for owner in records["owners"] if owner["line"]][place]


def chained_again(records) -> dict:
    """What a market could publish that forges its whole log: every hash fits."""
    after = (-1, records["task"]["card"])
    for number, old in enumerate(records["events"]):
        made = log.next_event(
            old["task"], old["kind"], old["body"], at_ms=old["at_ms"], after=after
        )
        records["events"][number] = {**old, "previous": made.previous, "hash": made.hash}
        after = made.sequence, made.hash
    records["task"]["last_hash"] = after[1]
    return records


def test_an_honest_trade_passes_every_check(records) -> None:
    checks = verify_task(**records)
    assert [check for check in checks if not check.passed] == []
    assert len(checks) == 14


def _body(records):
    event(records, "settled")["body"]["plans"] += 1


def _time(records):
    event(records, "opened")["at_ms"] += 1


def _order(records):
    records["events"][2], records["events"][3] = records["events"][3], records["events"][2]


def _missing(records):
    records["events"].remove(event(records, "last-tick"))


def _last_missing(records):
    records["events"].pop()


def _none_left(records):
    records["events"].clear()


def _extra(records):
    records["events"].append(records["events"][-1])


def _total(records):
    event(records, "announced")["body"]["offer"]["total_budget"] *= 1.01


def _reward(records):
    event(records, "announced")["body"]["offer"]["reward_micro"] += 1


def _payment(records):
    line(records)["payment_micro"] += 1


def _moved_payment(records):
    line(records, 0)["payment_micro"] += 1
    line(records, 1)["payment_micro"] -= 1


def _leaf(records):
    line(records)["leaf"] = "0" * 64


def _leaf_is_no_hash(records):
    line(records)["leaf"] = "no hash"


def _lost_line(records):
    records["owners"][0]["line"] = None


def _lost_owner(records):
    records["owners"].pop(0)


def _signature(records):
    line(records)["signature"] = line(records, 2)["signature"]


def _state_of_line(records):
    line(records, 1)["state"] = "signed"


def _answered(records):
    line(records)["answered"] -= 1


def _amount(records):
    records["entries"][-2]["amount"] += 1


def _held(records):
    records["entries"][0]["amount"] -= 1


def _entry(records):
    records["entries"].pop(3)


def _target(records):
    records["entries"][3]["target"] = "owner:mallory"


def _plan(records):
    records["owners"][0]["plan"]["budget"] *= 1.000001


def _plan_of_zero(records):
    records["owners"][4]["plan"]["budget"] = 0.001


def _tick(records):
    records["owners"][0]["plan"]["tick"] = 77


def _value(records):
    records["owners"][0]["interest"]["value"] = 3.0


def _card(records):
    records["card"]["goal"] = "something else"


def _card_and_hash(records):
    from fedbourse.wire.canonical import digest

    records["card"]["reward"] = 11.0
    records["task"]["card"] = digest(records["card"])


def _no_card(records):
    records["card"].clear()


def _state(records):
    records["task"]["state"] = "cancelled"


def _round(records):
    event(records, "round")["body"]["answers"] += 1


def _refund(records):
    records["events"][-1]["body"]["refunded_micro"] -= 1


def _declined(records):
    event(records, "training")["body"]["declined_micro"] -= 1


TAMPERED = [
    (_body, {"log"}),
    (_time, {"log"}),
    (_order, {"log", "totals"}),
    (_missing, {"log"}),
    (_last_missing, {"log", "life cycle"}),
    (_none_left, {"log", "life cycle"}),
    (_extra, {"log"}),
    (_total, {"log", "totals"}),
    (_reward, {"log", "reward", "escrow"}),
    (_payment, {"lines", "payments"}),
    (_moved_payment, {"lines", "payments"}),
    (_leaf, {"lines"}),
    (_leaf_is_no_hash, {"lines"}),
    (_lost_line, {"lines", "payments", "terms", "vesting"}),
    (_lost_owner, {"interests", "plans", "last tick", "lines", "payments"}),
    (_signature, {"terms"}),
    (_state_of_line, {"terms"}),
    (_answered, {"answers", "vesting"}),
    (_amount, {"vesting"}),
    (_held, {"escrow"}),
    (_entry, {"escrow"}),
    (_target, {"vesting"}),
    (_plan, {"plans", "last tick", "payments"}),
    (_plan_of_zero, {"plans", "last tick", "payments"}),
    (_tick, {"plans"}),
    (_value, {"interests"}),
    (_card, {"card"}),
    (_card_and_hash, {"card", "log", "reward"}),
    (_no_card, {"card", "reward", "payments", "vesting"}),
    (_state, {"life cycle"}),
    (_round, {"log", "answers"}),
    (_refund, {"log", "escrow"}),
    (_declined, {"log", "terms", "escrow"}),
]


@pytest.mark.parametrize(("tamper", "names"), TAMPERED, ids=lambda x: getattr(x, "__name__", ""))
def test_what_was_tampered_with_is_named(records, tamper, names) -> None:
    tamper(records)
    assert failed(records) >= names


@pytest.mark.parametrize(
    ("tamper", "names"),
    [
        (_body, {"plans"}),
        (_total, {"totals"}),
        (_reward, {"reward", "escrow"}),
        (_round, {"answers"}),
        (_refund, {"escrow"}),
        (_declined, {"terms", "escrow"}),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_log_that_was_forged_whole_is_caught_by_what_it_says(records, tamper, names) -> None:
    tamper(records)
    found = failed(chained_again(records))
    assert found >= names
    assert "log" not in found


def places(document, path=()):
    """Every place of a document, so that each can be spoilt."""
    yield path
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


@pytest.mark.parametrize("rubbish", [None, "x", -1, 1e999, [], {}, "00"], ids=repr)
def test_rubbish_anywhere_is_never_a_traceback(trade, rubbish) -> None:
    trading, owners, task_id = trade
    for viewer in (AUDITOR, owners[0]):
        honest = trading.records(task_id, viewer=viewer)
        for name in ("owners", "entries", "events"):
            if name in honest:
                del honest[name][8:]  # the first of each kind will do
        for path in {p for p in places(honest) if len(p) > 1}:
            spoilt = copy.deepcopy(honest)
            inner = spoilt
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = rubbish
            for check in verify_task(**spoilt):
                assert check.detail


def test_a_stranger_finds_nothing_false_and_is_told_what_it_cannot_check(trade) -> None:
    trading, _owners, task_id = trade
    checks = {check.name: check for check in verify_task(**trading.records(task_id, viewer=None))}
    for name in ("card", "log", "life cycle", "reward", "totals"):
        assert checks[name].passed, checks[name]
    hidden = set(checks) - {"card", "log", "life cycle", "reward", "totals"}
    assert {checks[name].passed for name in hidden} == {None}
    assert all("token" in checks[n].detail or "escrow" in checks[n].detail for n in hidden)


def test_each_owner_checks_its_own_line(trade) -> None:
    trading, owners, task_id = trade
    for owner in owners:
        checks = {check.name: check for check in trading.verified(task_id, owner=owner)}
        assert [check for check in checks.values() if check.passed is False] == []
        own = [check.passed for name, check in checks.items() if name.startswith("own")]
        assert own == ([None] * 3 if owner is owners[4] else [True] * 3)


@pytest.mark.parametrize(
    ("part", "key", "value", "name"),
    [
        ("line", "payment_micro", 1, "own line"),
        ("line", "payment_micro", 1, "own payment"),
        ("line", "budget", 5.0, "own line"),
        ("line", "leaf", "0" * 64, "own line"),
        ("line", "position", 1, "own line"),
        ("line", "position", 4, "own line"),
        ("line", "earned_micro", 1, "own earnings"),
        ("line", "answered", 1, "own earnings"),
        ("proof", "root", "0" * 64, "own line"),
        ("proof", "path", [], "own line"),
    ],
)
def test_an_owner_sees_that_its_line_was_changed(trade, part, key, value, name) -> None:
    trading, owners, task_id = trade
    records = trading.records(task_id, viewer=owners[0])
    records["own"][part][key] = value
    assert name in failed(records)


def test_every_state_on_the_way_verifies(store) -> None:
    trading = Trading(store)
    owners = trading.owners(1.0, 1.1, 1.2)
    trading.fund(20_000_000)
    task = trading.opened()
    seen = [task.id]
    for owner in owners:
        trading.do(
            selling.register_interest,
            owner.caller,
            task.id,
            value=owner.value,
            previous=task.card.digest,
        )

    def check() -> None:
        for viewer in (AUDITOR, None, *owners):
            found = verify_task(**trading.records(seen[0], viewer=viewer))
            assert [each for each in found if each.passed is False] == []

    check()
    task = trading.do(buying.announce, BUYER, task.id)
    check()
    for owner in owners:
        trading.plan(owner, task)
        check()
    trading.advance()
    check()
    for owner in owners:
        trading.decide(owner, task.id)
        check()
    trading.advance()
    check()
    trading.answer(owners[0], trading.task(task.id))
    check()
    trading.do(buying.cancel, BUYER, task.id)
    check()


@pytest.mark.parametrize("vesting", ["by-round", "upfront"])
def test_a_task_cancelled_in_training_verifies_for_everybody(store, vesting) -> None:
    trading = Trading(store)
    owners = trading.owners(1.0, 1.1)
    trading.fund(20_000_000)
    task = trading.in_training(owners, vesting=vesting)
    trading.answer(owners[0], task)
    trading.do(buying.cancel, BUYER, task.id)
    for viewer in (AUDITOR, *owners):
        found = verify_task(**trading.records(task.id, viewer=viewer))
        assert [each for each in found if each.passed is False] == []
    for owner in owners:
        earned = trading.mine(owner, task.id)["line"]["earned_micro"]
        assert trading.balance(owner.name) == earned


def test_a_settlement_of_less_than_was_announced_is_noticed(trade, records) -> None:
    trading, owners, task_id = trade
    event(records, "settled")["body"]["reward_micro"] -= 1
    forged = chained_again(records)
    assert {"payments", "lines", "terms"} <= failed(forged)
    own = trading.records(task_id, viewer=owners[0])
    event(own, "settled")["body"]["reward_micro"] -= 1
    assert "own payment" in failed(chained_again(own))


def test_an_answer_that_was_given_to_another_owner_is_noticed(records) -> None:
    first, second = (line(records, place)["owner"] for place in (0, 2))
    records["answers"][1][0]["owner"] = second
    line(records, 0)["answered"] -= 1
    line(records, 2)["answered"] += 1
    assert failed(records) == {"vesting"}  # it was paid to the first
    for entry in records["entries"]:
        if entry["id"].endswith(f"{first}/4"):
            entry["target"] = second
    assert first != second
    del records["answers"][1][0]
    assert "answers" in failed(records)


def test_what_escrow_is_said_to_hold_must_follow_from_its_transfers(records) -> None:
    records["escrow_micro"] = 1
    assert failed(records) == {"escrow"}


def test_a_total_that_does_not_fit_its_shares_does_not_stand_still(records) -> None:
    event(records, "last-tick")["body"]["stands_still"] = False
    assert "totals" in failed(chained_again(records))


def test_every_balance_is_recomputed_from_all_transfers() -> None:
    entries = [
        {"sequence": 2, "id": "b", "source": "buyer:a", "target": "escrow:t", "amount": 3},
        {"sequence": 1, "id": "a", "source": "outside", "target": "buyer:a", "amount": 5},
    ]
    held = {"outside": -5, "buyer:a": 2, "escrow:t": 3}

    def judged(entries, held) -> dict:
        accounts = [{"party": name, "balance_micro": micro} for name, micro in held.items()]
        return {
            check.name: check.passed for check in verify_books(entries=entries, accounts=accounts)
        }

    right = {"transfers": True, "balances": True, "conservation": True}
    assert judged(entries, held) == right
    assert judged(entries, held | {"owner:evil": 7}) == right | {
        "balances": False,
        "conservation": False,
    }
    assert judged(entries, held | {"buyer:a": 3, "escrow:t": 2}) == right | {"balances": False}
    assert judged(entries[:1], {}) == right | {"transfers": False}


@pytest.mark.parametrize(
    ("held", "right"),
    [
        ({"outside": -5, "buyer:a": 5}, True),  # read before the late transfers
        ({"outside": -5, "buyer:a": 2, "escrow:t": 3}, True),  # after them
        ({"outside": -5, "buyer:a": 4, "escrow:t": 3}, True),  # some accounts in between
        ({"outside": -5, "buyer:a": 3, "escrow:t": 2}, False),  # at no moment
    ],
)
def test_a_market_that_moves_while_it_is_read_is_no_false_alarm(held, right) -> None:
    first = [{"sequence": 1, "id": "a", "source": "outside", "target": "buyer:a", "amount": 5}]
    late = [
        {"sequence": 2, "id": "b", "source": "buyer:a", "target": "escrow:t", "amount": 1},
        {"sequence": 3, "id": "c", "source": "buyer:a", "target": "escrow:t", "amount": 2},
    ]
    accounts = [{"party": name, "balance_micro": micro} for name, micro in held.items()]
    found = verify_books(entries=first, accounts=accounts, meanwhile=late)
    assert {check.name: check.passed for check in found} == {
        "transfers": True,
        "balances": right,
        "conservation": None,
    }
