"""What must hold in a market's records at every moment, read past the market, by plain SQL."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbourse.market.commands.access import hash_of
from fedbourse.market.log import Event, is_intact
from fedbourse.tasks.card import TaskCard
from fedbourse.testing.e2e.forks import read_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

Row = dict[str, Any]
TABLES = (
    "tasks", "events", "interests", "replies", "exits", "allocations", "rounds", "updates",
    "accounts", "transfers", "payouts",
    "payout_steps", "tokens", "enrolments", "devices", "responses",
)  # fmt: skip


class InvariantBroken(AssertionError):
    """The records of a market, or of a device, do not hold what was promised."""


@dataclass(frozen=True)
class Records:
    """All of a market's records at one moment."""

    tables: dict[str, list[Row]]
    paid_before: list[Row]
    """The file of payouts just before that moment."""
    paid_after: list[Row]

    def by(self, table: str, *columns: str) -> dict[Any, Row]:
        """Return the rows of a table by their key."""
        return {
            tuple(row[column] for column in columns) if len(columns) > 1 else row[columns[0]]: row
            for row in self.tables[table]
        }

    @property
    def balances(self) -> dict[str, int]:
        return {row["id"]: row["balance"] for row in self.tables["accounts"] if row["balance"]}


@dataclass(frozen=True)
class Acknowledged:
    """A write that somebody was told has happened."""

    kind: str
    caller: str
    """Who keeps the idempotency key."""
    key: str
    document: Any
    """The response."""


def read_records(database: str, payouts: Path) -> Records:
    """Read everything in one transaction."""
    before = read_lines(payouts)
    tables = _sqlite(database) if database.startswith("sqlite") else _postgresql(database)
    return Records(tables, before, read_lines(payouts))


def _sqlite(database: str) -> dict[str, list[Row]]:
    file = database.removeprefix("sqlite:///")
    with closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN")
        return {
            table: [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]
            for table in TABLES
        }


def _postgresql(database: str) -> dict[str, list[Row]]:
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(database, row_factory=dict_row) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}


def broken_invariants(records: Records) -> list[str]:
    """Return a sentence for each invariant that does not hold."""
    return [*_books(records), *_tasks(records), *_payouts(records), *_responses(records)]


def _books(records: Records) -> Iterable[str]:
    moved: defaultdict[str, int] = defaultdict(int)
    for transfer in records.tables["transfers"]:
        moved[transfer["debit"]] -= transfer["amount"]
        moved[transfer["credit"]] += transfer["amount"]
    held = records.balances
    if held != {name: balance for name, balance in moved.items() if balance}:
        yield "balances are not what the transfers make them"
    if sum(held.values()):
        yield f"all balances sum to {sum(held.values())}"
    for name, balance in held.items():
        if balance < 0 and name != "outside":
            yield f"{name} holds {balance}"
    yield from (
        f"the fund was debited by {transfer['id']}"
        for transfer in records.tables["transfers"]
        if transfer["debit"] == "fund"
    )


def _tasks(records: Records) -> Iterable[str]:
    grouped = {
        table: _grouped(records.tables[table], "task")
        for table in ("events", "allocations", "updates", "exits")
    }
    escrows: defaultdict[str, list[Row]] = defaultdict(list)
    for transfer in records.tables["transfers"]:
        escrows[transfer["id"].partition("/")[0]].append(transfer)
    for task in records.tables["tasks"]:
        id = task["id"]
        allocations, updates = grouped["allocations"][id], grouped["updates"][id]
        opened = any(event["kind"] == "opened" for event in grouped["events"][id])
        for violation in (
            *_log(task, grouped["events"][id]),
            *_settled(task, allocations, updates, grouped["exits"][id]),
            *_earned(task, allocations, updates),
            *_money(
                task,
                allocations,
                escrows[id],
                records.balances.get(f"escrow:{id}", 0),
                opened=opened,
            ),
        ):
            yield f"task {id}, {task['state']}: {violation}"


def _log(task: Row, events: list[Row]) -> Iterable[str]:
    end = TaskCard.of(json.loads(task["card"])).digest
    for number, row in enumerate(sorted(events, key=lambda row: row["sequence"])):
        event = Event(**row | {"body": json.loads(row["body"])})
        if event.sequence != number or event.previous != end or not is_intact(event):
            yield f"event {number} does not follow the one before"
        end = event.hash
    if (len(events) - 1, end) != (task["last_sequence"], task["last_hash"]):
        yield "its log does not end where the task says"


def _settled(
    task: Row, allocations: list[Row], updates: list[Row], exits: list[Row]
) -> Iterable[str]:
    if allocations and sum(each["payment"] for each in allocations) != task["reward"]:
        yield "its payments do not sum to R"
    if bool(allocations) != (task["state"] in ("settled", "training", "completed")) and (
        task["state"] != "cancelled"
    ):
        yield f"it has {len(allocations)} allocations"
    out = {row["owner"] for row in exits}
    counts = Counter(update["owner"] for update in updates)
    for allocation in allocations:
        owner, delivered = allocation["owner"], allocation["delivered"]
        if owner in out:
            yield f"{owner} is out, and has an allocation"
        if delivered != counts[owner]:
            yield f"{owner} delivered {counts[owner]} rounds, and its allocation says {delivered}"


def _earned(task: Row, allocations: list[Row], updates: list[Row]) -> Iterable[str]:
    """What allocations say was earned, and held: by delivered rounds, and by blocks of evidence."""
    card = json.loads(task["card"])
    rounds, block = card["rounds"], 0
    if card["evidence"]:
        block = min(card["evidence"]["hold_rounds"] or rounds, rounds)
    open_block = task["round"] // block if block and task["state"] == "training" else rounds
    delivered = _grouped(updates, "owner")
    for each in allocations:
        owner, count = each["owner"], each["delivered"]
        blocks = [row["round"] // block for row in delivered[owner]] if block else []

        def pay(count: int, payment: int = each["payment"]) -> int:
            return payment * count // rounds

        before = pay(sum(number < open_block for number in blocks))
        held, due = (pay(count) - before if block else 0), pay(count)
        if each["state"] == "dismissed" and max(blocks, default=0) < open_block:
            # It was dismissed in the block of its last update, and that one was decided on.
            due = pay(sum(number < max(blocks) for number in blocks))
        if each["earned"] != due:
            yield f"{owner} has earned {each['earned']}, and delivered rounds bring {due}"
        if each["held"] != held:
            yield f"{owner} has {each['held']} held, and its open block brings {held}"


def _money(
    task: Row, allocations: list[Row], moves: list[Row], held: int, *, opened: bool
) -> Iterable[str]:
    card = json.loads(task["card"])
    reserve = round(card["reward"] * 1e6) if opened else 0
    by_end: defaultdict[str, int] = defaultdict(int)
    for move in moves:
        name = move["id"].partition("/")[2]
        by_end[name.rpartition("/")[0] or name] += move["amount"]
    due = {each["owner"]: each["earned"] - each["held"] for each in allocations}
    paid = {name: amount for name, amount in by_end.items() if name.startswith("owner:")}
    if paid != {owner: amount for owner, amount in due.items() if amount}:
        yield f"owners were paid {paid}, and have earned {due} that is not held"
    if by_end["escrow"] != reserve:
        yield f"escrow took in {by_end['escrow']}, and R is {reserve}"
    left = reserve - sum(paid.values()) - by_end["refund"] - by_end["fund"]
    if held != left:
        yield f"escrow holds {held}, and held - out is {left}"
    if task["state"] in ("draft", "completed", "cancelled") and held:
        yield f"escrow still holds {held}"
    if task["state"] in ("open", "announced", "settled") and held != reserve:
        yield f"escrow holds {held} of {reserve}"
    if task["state"] == "completed" and by_end["refund"]:
        yield f"{by_end['refund']} went back that nobody but the fund gets"


def _payouts(records: Records) -> Iterable[str]:
    transfers, payouts = records.by("transfers", "id"), records.by("payouts", "id")
    after = Counter(line["id"] for line in records.paid_after)
    for id, payout in payouts.items():
        transfer = transfers.get(f"withdrawal/{id}")
        if transfer is None or (transfer["debit"], transfer["amount"]) != (
            payout["party"],
            payout["amount"],
        ):
            yield f"payout {id} left no account"
        if payout["state"] in ("sent", "confirmed") and not after[id]:
            yield f"payout {id} is marked as handed over, and was not"
        steps = [row for row in records.tables["payout_steps"] if row["payout"] == id]
        if max(steps, key=lambda row: row["number"])["state"] != payout["state"]:
            yield f"payout {id} is {payout['state']}, and its steps say otherwise"
        if len(steps) != payout["steps"] + 1:
            yield f"payout {id} has {len(steps)} steps, and counts {payout['steps']}"
    on_its_way = sum(
        row["amount"] for row in payouts.values() if row["state"] not in ("confirmed", "returned")
    )
    if records.balances.get("payouts", 0) != on_its_way:
        yield f"pay-outs of {on_its_way} are on their way, and the account holds another sum"
    left = [id for id in transfers if id.startswith("withdrawal/")]
    if len(left) != len(payouts):
        yield f"{len(left)} withdrawals, and {len(payouts)} payouts"
    yield from (f"payout {id} was handed over {n} times" for id, n in after.items() if n > 1)
    yield from (
        f"payout {line['id']} was handed over, and never left the books"
        for line in records.paid_before
        if line["id"] not in payouts
    )


def _responses(records: Records) -> Iterable[str]:
    for row in records.tables["responses"]:
        if row["status"] is None or row["body"] is None:
            yield f"the key {row['key']} was claimed and never used"


_PUTS = frozenset({"interest", "plan", "update"})
"""Writes that can be repeated without a key; these trades let hours pass between two of them."""


def lost(records: Records, acknowledged: Iterable[Acknowledged]) -> list[str]:
    """Return a sentence for each acknowledged write whose effect or response is not there."""
    responses = records.by("responses", "caller", "key")
    checks = _effects(records)
    erased = {(row["task"], row["owner"]) for row in records.tables["interests"] if not row["salt"]}
    broken = []
    for each in acknowledged:
        row = responses.get((each.caller, each.key))
        task = each.document.get("receipt", each.document).get("task")
        if each.kind != "erase" and (task, each.caller) in erased:
            if row is not None:
                broken.append(f"{each.key}: the response is kept after it was to be erased")
        elif row is None and each.kind in _PUTS:
            pass  # after some minutes only its effect is
        elif row is None or json.loads(row["body"]) != _without_secret(each.document):
            broken.append(f"{each.key}: the response is not kept")
        if not checks[each.kind](each):
            broken.append(f"{each.key}: acknowledged, and lost")
    return broken


def _without_secret(document: dict[str, Any]) -> dict[str, Any]:
    """Return a response as it is kept: a token follows from its id and the market's key."""
    return document | {"token": ""} if "token" in document else document


def _effects(records: Records) -> dict[str, Callable[[Acknowledged], bool]]:
    """Return, for each kind of write, how to see that it has happened."""
    events = records.by("events", "task", "sequence")
    interests, exits, allocations = (
        records.by(table, "task", "owner") for table in ("interests", "exits", "allocations")
    )
    replies = records.by("replies", "task", "tick", "owner")
    restarted = {row["task"] for row in records.tables["events"] if row["kind"] == "restarted"}
    updates = records.by("updates", "task", "round", "owner")
    tokens, devices, payouts = (records.by(name, "id") for name in ("tokens", "devices", "payouts"))
    enrolments, transfers = records.by("enrolments", "hash"), records.by("transfers", "id")

    def task(each: Acknowledged) -> bool:
        document = each.document
        event = events.get((document["task"], document["events"] - 1))
        return event is not None and event["hash"] == document["last_hash"]

    def plan(each: Acknowledged) -> bool:
        document = each.document
        reply = replies.get((document["task"], document["tick"], document["owner"]))
        if reply is None:  # a zero to a smaller total stands
            return document["budget"] == 0
        return reply["leaf"] == document["leaf"]

    def terms(each: Acknowledged) -> bool:
        document = each.document
        place = document["task"], document["owner"]
        allocation = allocations.get(place, {})
        if allocation.get("leaf") != document["leaf"] and document["task"] in restarted:
            # It was settled again: without who declined, and for new signatures.
            return document["state"] == "signed" or exits[place]["reason"] == "declined"
        return all(
            allocation.get(name) == document[name] for name in ("state", "signature", "leaf")
        )

    def update(each: Acknowledged) -> bool:
        document = each.document["receipt"]
        row = updates.get((document["task"], document["round"], document["owner"]))
        return row is not None and json.loads(row["receipt"]) == each.document

    def payout(each: Acknowledged) -> bool:
        return (row := payouts.get(each.document["id"])) is not None and (
            row["amount"] == each.document["amount_micro"]
        )

    def ended(each: Acknowledged) -> bool:
        return bool(payouts[each.document["id"]]["state"] == each.document["state"])

    def deposit(each: Acknowledged) -> bool:
        document = each.document
        transfer = transfers.get(f"deposit/{document['reference']}")
        return transfer is not None and transfer["amount"] == document["amount_micro"]

    def token(each: Acknowledged) -> bool:
        row = tokens.get(each.document["id"])
        return row is not None and row["hash"] == hash_of(each.document["token"])

    def device(each: Acknowledged) -> bool:
        row = devices.get(each.document["device"])
        return row is not None and row["owner"] == each.document["owner"]

    def interest(each: Acknowledged) -> bool:
        row = interests.get((each.document["task"], each.document["owner"]))
        return row is not None and row["leaf"] == each.document["leaf"]

    def erased(each: Acknowledged) -> bool:
        row = interests.get((each.document["task"], each.document["owner"]))
        return row is not None and row["value"] is None and not row["salt"]

    return {
        **dict.fromkeys(("create", "open", "announce", "train", "cancel"), task),
        "interest": interest,
        "plan": plan,
        "sign": terms,
        "decline": terms,
        "update": update,
        "erase": erased,
        "deposit": deposit,
        "withdraw": payout,
        "confirm": ended,
        "return": ended,
        "token": token,
        "revoke": lambda each: (
            tokens[each.document["id"]]["revoked_ms"] == each.document["revoked_ms"]
        ),
        "enrolment": lambda each: hash_of(each.document["token"]) in enrolments,
        "enrol": device,
    }


def _grouped(rows: list[Row], column: str) -> defaultdict[str, list[Row]]:
    grouped: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row[column]].append(row)
    return grouped
