"""A task recomputed from its records: what was tampered with is named, and nothing raises."""

import copy
from dataclasses import replace

import pytest

from fedbourse.game.mechanisms import MECHANISMS, proportional
from fedbourse.market import log, price_discovery, unearned
from fedbourse.market.audit import verify_books, verify_task
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.registry import Choice
from fedbourse.storage.sql import SqlTransaction
from fedbourse.testing.trading import AUDITOR, BUYER, Trading, best_budget


@pytest.fixture(scope="module")
def trade(sqlite_template, tmp_path_factory):
    """A completed trade: one owner missed a tick, one declined, one missed a round."""
    import shutil

    from fedbourse.storage import SqlStore

    file = shutil.copy(sqlite_template, tmp_path_factory.mktemp("verify") / "market.db")
    with SqlStore(f"sqlite:///{file}") as store:
        trading = Trading(store)
        owners = trading.owners(1.0, 1.1, 1.2, 1.3, 9.0, 1.4)
        trading.fund(20_000_000)
        task = trading.announced(owners)
        silent_at = {owners[5].name: 1}

        def reply(owner, task):
            silent = task.tick >= silent_at.get(owner.name, 99)
            return None if silent else best_budget(owner, task)

        task = trading.play(owners, task, reply)
        for owner in owners[:4]:
            trading.decide(owner, task.id, accept=owner is not owners[1])
        trading.advance()
        left = [owners[0], owners[2], owners[3], owners[4]]
        task = trading.signed(left, trading.play(left, trading.task(task.id)))
        trading.trained(left, task, absent={(1, 2)})
        yield trading, owners, task.id


@pytest.fixture
def records(trade) -> dict:
    trading, _owners, task_id = trade
    return trading.records(task_id, viewer=AUDITOR)


def failed(records) -> set[str]:
    return {check.name for check in verify_task(**records) if check.passed is False}


def event(records, kind, place=0) -> dict:
    return [each for each in records["events"] if each["kind"] == kind][place]


def allocation(records, place=0) -> dict:
    return [owner["allocation"] for owner in records["owners"] if owner["allocation"]][place]


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
    assert len(checks) == 17
    kinds = [each["kind"] for each in records["events"]]
    assert {"last-tick", "restarted", "settled"} <= set(kinds)
    reasons = {owner["exit"]["reason"] for owner in records["owners"] if owner["exit"]}
    assert reasons == {"missed", "declined"}
    assert records["events"][-1]["body"]["fund_micro"] > 0


def _body(records):
    event(records, "settled", -1)["body"]["plans"] += 1


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
    allocation(records)["payment_micro"] += 1


def _moved_payment(records):
    allocation(records, 0)["payment_micro"] += 1
    allocation(records, 1)["payment_micro"] -= 1


def _leaf(records):
    allocation(records)["leaf"] = "0" * 64


def _leaf_is_no_hash(records):
    allocation(records)["leaf"] = "no hash"


def _lost_line(records):
    records["owners"][0]["allocation"] = None


def _lost_owner(records):
    records["owners"].pop(0)


def _signature(records):
    allocation(records)["signature"] = allocation(records, 2)["signature"]


def _state_of_line(records):
    allocation(records, 1)["state"] = "declined"


def _delivered(records):
    allocation(records)["delivered"] -= 1


def _amount(records):
    records["entries"][-2]["amount"] += 1


def _held(records):
    records["entries"][0]["amount"] -= 1


def _entry(records):
    records["entries"].pop(3)


def _target(records):
    records["entries"][3]["credit"] = "owner:mallory"


def plan(records, place=0) -> dict:
    tick = event(records, "settled", -1)["body"]["tick"]
    return next(each for each in records["owners"][place]["replies"] if each["tick"] == tick)


def _plan(records):
    plan(records)["budget"] *= 1.000001


def _early_reply(records):
    records["owners"][0]["replies"][0]["budget"] *= 1.000001


def _plan_of_zero(records):
    records["owners"][4]["replies"][-1]["budget"] = 0.001


def _tick(records):
    plan(records)["tick"] = 77


def _lost_reply(records):
    records["owners"][0]["replies"].remove(plan(records))


def _lost_early_reply(records):
    records["owners"][3]["replies"].pop(0)


def _made_up_reply(records):
    records["owners"][5]["replies"].append({**plan(records), "owner": "owner:000005"})


def _missed_owner_is_back(records):
    records["owners"][5]["exit"] = None


def _decliner_is_back(records):
    records["owners"][1]["exit"] = None


def _made_up_exit(records):
    records["owners"][0]["exit"] = {**records["owners"][5]["exit"], "owner": "owner:000000"}


def _exit_at_another_tick(records):
    records["owners"][5]["exit"]["tick"] += 1


def _exchanged_exits(records):
    first, second = records["owners"][1], records["owners"][2]
    first["exit"], second["exit"] = None, first["exit"]


def _settled_tick(records):
    event(records, "settled", -1)["body"]["tick"] -= 1


def _settled_total(records):
    event(records, "settled", -1)["body"]["announced_total"] *= 1.000001


def _converged(records):
    event(records, "settled", -1)["body"]["converged"] = False


def _closed_sum(records):
    event(records, "ticked")["body"]["share_sum"] *= 1.000001


def _closed_out(records):
    event(records, "last-tick", -1)["body"]["out"] += 1


def _total_after_restart(records):
    place = [each["kind"] for each in records["events"]].index("restarted")
    records["events"][place + 1]["body"]["offer"]["total_budget"] *= 1.01


def _fund(records):
    records["events"][-1]["body"]["fund_micro"] -= 1
    records["events"][-1]["body"]["refunded_micro"] += 1


def _fund_paid_to_the_buyer(records):
    for entry in records["entries"]:
        if entry["credit"] == "fund":
            entry["credit"] = records["task"]["buyer"]
    body = records["events"][-1]["body"]
    body["refunded_micro"], body["fund_micro"] = body["fund_micro"] + body["refunded_micro"], 0


def _reserved(records):
    event(records, "opened")["body"]["reserved_micro"] += 1


def _value(records):
    records["owners"][0]["interest"]["value"] = 3.0


def _card(records):
    records["card"]["goal"] = "something else"


def _card_and_hash(records):
    from fedbourse.encoding.canonical import digest

    records["card"]["reward"] = 11.0
    records["task"]["card"] = digest(records["card"])


def _no_card(records):
    records["card"].clear()


def _state(records):
    records["task"]["state"] = "cancelled"


def _round(records):
    event(records, "round")["body"]["updates"] += 1


def _refund(records):
    records["events"][-1]["body"]["refunded_micro"] -= 1


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
    (_payment, {"allocations", "payments"}),
    (_moved_payment, {"allocations", "payments"}),
    (_leaf, {"allocations"}),
    (_leaf_is_no_hash, {"allocations"}),
    (_lost_line, {"allocations", "payments", "terms", "vesting"}),
    (_lost_owner, {"interests", "replies", "plans", "allocations", "payments"}),
    (_signature, {"terms"}),
    (_state_of_line, {"terms"}),
    (_delivered, {"updates", "vesting"}),
    (_amount, {"vesting"}),
    (_held, {"escrow"}),
    (_entry, {"escrow"}),
    (_target, {"vesting"}),
    (_plan, {"replies", "sums", "payments"}),
    (_early_reply, {"replies", "sums"}),
    (_plan_of_zero, {"replies", "sums"}),
    (_tick, {"replies", "plans", "payments"}),
    (_lost_reply, {"replies", "plans", "payments"}),
    (_lost_early_reply, {"replies", "sums"}),
    (_made_up_reply, {"replies", "sums"}),
    (_missed_owner_is_back, {"replies", "totals"}),
    (_decliner_is_back, {"replies", "totals"}),
    (_made_up_exit, {"replies", "totals", "plans", "payments"}),
    (_exit_at_another_tick, {"replies"}),
    (_exchanged_exits, {"totals", "plans", "payments"}),
    (_settled_tick, {"log", "settlement"}),
    (_settled_total, {"log", "settlement"}),
    (_converged, {"log", "settlement"}),
    (_closed_sum, {"log", "sums"}),
    (_closed_out, {"log", "replies"}),
    (_total_after_restart, {"log", "totals"}),
    (_fund, {"log", "escrow"}),
    (_fund_paid_to_the_buyer, {"log", "escrow"}),
    (_reserved, {"log", "escrow"}),
    (_value, {"interests"}),
    (_card, {"card"}),
    (_card_and_hash, {"card", "log", "reward"}),
    (_no_card, {"card", "reward", "payments", "vesting"}),
    (_state, {"life cycle"}),
    (_round, {"log", "updates"}),
    (_refund, {"log", "escrow"}),
]


@pytest.mark.slow
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
        (_round, {"updates"}),
        (_refund, {"escrow"}),
        (_settled_tick, {"settlement"}),
        (_settled_total, {"settlement"}),
        (_converged, {"settlement"}),
        (_closed_sum, {"sums"}),
        (_closed_out, {"replies"}),
        (_total_after_restart, {"totals"}),
        (_fund, {"escrow"}),
        (_fund_paid_to_the_buyer, {"escrow"}),
        (_reserved, {"escrow"}),
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


@pytest.mark.slow
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
    for name in ("card", "log", "life cycle", "reward"):
        assert checks[name].passed, checks[name]
    hidden = set(checks) - {"card", "log", "life cycle", "reward"}
    assert {checks[name].passed for name in hidden} == {None}
    assert all("token" in checks[n].detail or "escrow" in checks[n].detail for n in hidden)


def test_each_owner_checks_its_own_line(trade) -> None:
    trading, owners, task_id = trade
    for owner in owners:
        checks = {check.name: check for check in trading.verified(task_id, owner=owner)}
        assert [check for check in checks.values() if check.passed is False] == []
        own = [check.passed for name, check in checks.items() if name.startswith("own")]
        if owner in (owners[1], owners[5]):  # out: it must have no line
            assert own == [True, None, None]
        else:
            assert own == ([None] * 3 if owner is owners[4] else [True] * 3)


def test_a_stranger_recomputes_every_total_while_nobody_is_out(store) -> None:
    trading = Trading(store)
    owners = trading.owners(1.0, 1.1, 1.2)
    trading.fund(20_000_000)
    task = trading.completed(owners)
    checks = {check.name: check for check in verify_task(**trading.records(task.id, viewer=None))}
    for name in ("card", "log", "life cycle", "reward", "totals", "settlement"):
        assert checks[name].passed, checks[name]


@pytest.mark.parametrize(
    ("part", "key", "value", "name"),
    [
        ("allocation", "payment_micro", 1, "own allocation"),
        ("allocation", "payment_micro", 1, "own payment"),
        ("allocation", "budget", 5.0, "own allocation"),
        ("allocation", "leaf", "0" * 64, "own allocation"),
        ("allocation", "position", 1, "own allocation"),
        ("allocation", "position", 4, "own allocation"),
        ("allocation", "earned_micro", 1, "own earnings"),
        ("allocation", "delivered", 1, "own earnings"),
        ("proof", "root", "0" * 64, "own allocation"),
        ("proof", "path", [], "own allocation"),
    ],
)
def test_an_owner_sees_that_its_line_was_changed(trade, part, key, value, name) -> None:
    trading, owners, task_id = trade
    records = trading.records(task_id, viewer=owners[0])
    records["own"][part][key] = value
    assert name in failed(records)


@pytest.mark.slow
def test_every_state_on_the_way_verifies(store) -> None:
    trading = Trading(store)
    owners = trading.owners(1.0, 1.1, 1.2)
    trading.fund(20_000_000)
    task = trading.opened()
    seen = [task.id]
    for owner in owners:
        trading.do(
            owner_commands.register_interest,
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
    task = trading.do(buyer_commands.announce, BUYER, task.id)
    check()
    for owner in owners:
        trading.plan(owner, task)
        check()
    while task.state.value == "announced":
        for owner in owners:
            trading.plan(owner, task)
        trading.advance()
        check()
        task = trading.task(task.id)
    for owner in owners:
        trading.decide(owner, task.id)
        check()
    trading.advance()
    check()
    trading.update(owners[0], trading.task(task.id))
    check()
    trading.do(buyer_commands.cancel, BUYER, task.id)
    check()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("vesting", "unearned"),
    [("by-round", "fund"), ("by-round", "refund"), ("by-round", "share"), ("upfront", "fund")],
)
@pytest.mark.parametrize("closed", [0, 1, 3])
def test_a_task_cancelled_in_training_verifies_for_everybody(
    store, vesting, unearned, closed
) -> None:
    trading = Trading(store)
    owners = trading.owners(1.0, 1.1, 1.3)
    trading.fund(20_000_000)
    task = trading.in_training(owners, vesting=vesting, unearned=unearned)
    task = trading.trained(owners, task, absent={(0, 1), (2, 0), (2, 1), (2, 2)}, until=closed)
    for owner in owners[:2]:
        trading.update(owner, task)
    trading.do(buyer_commands.cancel, BUYER, task.id)
    for viewer in (AUDITOR, *owners):
        found = verify_task(**trading.records(task.id, viewer=viewer))
        assert [each for each in found if each.passed is False] == []
    for owner in owners:
        earned = trading.participation(owner, task.id)["allocation"]["earned_micro"]
        assert trading.balance(owner.name) == earned


def test_a_task_cancelled_while_it_is_discovered_again_verifies_for_everybody(store) -> None:
    trading = Trading(store)
    owners = trading.owners(1.0, 1.1, 1.2, 1.3)
    trading.fund(20_000_000)
    task = trading.settled(owners)
    for owner in owners:
        trading.decide(owner, task.id, accept=owner is not owners[0])
    trading.advance()
    assert trading.task(task.id).state.value == "announced"
    trading.do(owner_commands.leave_task, owners[1].caller, task.id)
    trading.do(buyer_commands.cancel, BUYER, task.id)
    for viewer in (AUDITOR, None, *owners):
        found = verify_task(**trading.records(task.id, viewer=viewer))
        assert [each for each in found if each.passed is False] == []
    assert trading.balance(BUYER.party) == 20_000_000


# -- markets that break a rule while their log is whole --------------------------------------------


def dishonest(trading, owners, **changes) -> dict[str, bool | None]:
    """What an auditor finds in a trade of a market that was changed."""
    task = trading.completed(owners, absent={(0, 0), (1, 1)}, **changes)
    return {check.name: check.passed for check in trading.verified(task.id)}


@pytest.fixture
def trading(store) -> Trading:
    made = Trading(store)
    made.fund(20_000_000)
    return made


def wrong(checks) -> set[str]:
    return {name for name, passed in checks.items() if not passed}


@pytest.mark.slow
def test_a_market_that_takes_contradicting_replies_is_caught(trading, monkeypatch) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    assert wrong(dishonest(trading, owners)) == set()
    monkeypatch.setattr(owner_commands, "_refuse_contradiction", lambda *_: None)
    task = trading.announced(owners)
    replies = iter([0.1, 4.0])

    def reply(owner, task):
        return next(replies, 0.3) if owner is owners[2] else best_budget(owner, task)

    task = trading.play(owners, task, reply)
    checks = {check.name: check.passed for check in trading.verified(task.id)}
    assert checks["activity"] is False
    assert checks["log"]
    assert checks["replies"]


def test_a_market_that_settles_at_a_tick_of_its_choice_is_caught(trading, monkeypatch) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    by_rule = price_discovery.settle

    def at_the_largest_total(market, tx, task, discovery):
        chosen = max(discovery.ticks, key=lambda tick: tick.total_budget)
        return by_rule(market, tx, task, replace(discovery, ticks=(chosen,) * len(task.totals)))

    monkeypatch.setattr(price_discovery, "settle", at_the_largest_total)
    task = trading.settled(owners)
    checks = {check.name: check.passed for check in trading.verified(task.id)}
    assert checks["settlement"] is False
    assert checks["log"]
    assert checks["totals"]


def test_a_market_that_gives_absentees_pay_to_the_buyer_is_caught(trading, monkeypatch) -> None:
    monkeypatch.setattr(unearned, "FUND", BUYER.party)
    checks = dishonest(trading, trading.owners(1.0, 1.1, 1.2))
    assert wrong(checks) == {"escrow"}


def test_a_market_that_shares_otherwise_than_by_the_rule_is_caught(trading, monkeypatch) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    assert wrong(dishonest(trading, owners, unearned="share")) == set()
    by_rule = unearned.shared_bonuses

    def all_to_one(payments, deliverers, **options):
        bonuses = by_rule(payments, deliverers, **options)
        return {min(payments): sum(bonuses.values())}

    monkeypatch.setattr(unearned, "shared_bonuses", all_to_one)
    assert wrong(dishonest(trading, owners, unearned="share")) == {"vesting"}


def test_a_market_that_lets_a_silent_device_stay_is_caught(trading, monkeypatch) -> None:
    owners = trading.owners(1.0, 1.1, 1.2, 1.3)
    monkeypatch.setattr(SqlTransaction, "miss_tick", lambda self, *_, **__: 0)

    def reply(owner, task):
        silent = owner is owners[3] and task.tick == 0
        return None if silent else best_budget(owner, task)

    task = trading.play(owners, trading.announced(owners), reply)
    assert len(trading.allocations(task.id)) == 4
    checks = {check.name: check.passed for check in trading.verified(task.id)}
    assert "replies" in wrong(checks)


def test_a_settlement_of_less_than_was_announced_is_noticed(trade, records) -> None:
    trading, owners, task_id = trade
    event(records, "settled", -1)["body"]["reward_micro"] -= 1
    forged = chained_again(records)
    assert {"payments", "allocations", "terms"} <= failed(forged)
    own = trading.records(task_id, viewer=owners[0])
    event(own, "settled", -1)["body"]["reward_micro"] -= 1
    assert "own payment" in failed(chained_again(own))


def test_another_mechanism_leaves_the_owners_payment_to_auditors(store, monkeypatch) -> None:
    def equal(read, reward):
        pay = proportional(lambda: [(each > 0).astype(float) for each in read()], reward)
        return lambda budgets: pay((budgets > 0).astype(float))

    mechanism = replace(MECHANISMS["proportional"], settlement=equal)
    choice = Choice("equal", "Equal", "the same", mechanism)
    monkeypatch.setitem(MECHANISMS._choices, "equal", choice)
    trading = Trading(store)
    owners = trading.owners(1.0, 1.1, 1.3)
    trading.fund(20_000_000)
    task = trading.completed(owners, compensation="equal")
    own = {check.name: check for check in trading.verified(task.id, owner=owners[0])}
    assert own["own payment"].passed is None
    assert "auditors recompute it" in own["own payment"].detail
    checks = {check.name: check.passed for check in trading.verified(task.id)}
    assert checks["payments"]
    assert not wrong(checks)


def test_an_answer_that_was_given_to_another_owner_is_noticed(records) -> None:
    first, second = (allocation(records, place)["owner"] for place in (0, 2))
    records["updates"][1][0]["owner"] = second
    allocation(records, 0)["delivered"] -= 1
    allocation(records, 2)["delivered"] += 1
    assert failed(records) == {"vesting", "escrow"}  # it was paid to the first
    for entry in records["entries"]:
        if entry["id"].endswith(f"{first}/4"):
            entry["credit"] = second
    assert first != second
    del records["updates"][1][0]
    assert "updates" in failed(records)


def test_what_escrow_is_said_to_hold_must_follow_from_its_transfers(records) -> None:
    records["escrow_micro"] = 1
    assert failed(records) == {"escrow"}


def test_a_total_that_did_not_converge_is_not_said_to_have(records) -> None:
    event(records, "last-tick")["body"]["converged"] = False
    assert "totals" in failed(chained_again(records))


def test_every_balance_is_recomputed_from_all_transfers() -> None:
    entries = [
        {"sequence": 2, "id": "b", "debit": "buyer:a", "credit": "escrow:t", "amount": 3},
        {"sequence": 1, "id": "a", "debit": "outside", "credit": "buyer:a", "amount": 5},
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
    first = [{"sequence": 1, "id": "a", "debit": "outside", "credit": "buyer:a", "amount": 5}]
    late = [
        {"sequence": 2, "id": "b", "debit": "buyer:a", "credit": "escrow:t", "amount": 1},
        {"sequence": 3, "id": "c", "debit": "buyer:a", "credit": "escrow:t", "amount": 2},
    ]
    accounts = [{"party": name, "balance_micro": micro} for name, micro in held.items()]
    found = verify_books(entries=first, accounts=accounts, meanwhile=late)
    assert {check.name: check.passed for check in found} == {
        "transfers": True,
        "balances": right,
        "conservation": None,
    }
