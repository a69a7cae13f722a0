"""Records to store, and how books are checked."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from fedbourse.ledger import Transfer
from fedbourse.market.log import Event, next_event
from fedbourse.market.records import Allocation, Exit, ExitReason, Interest, State, Task, TickReply
from fedbourse.tasks.card import TaskCard

if TYPE_CHECKING:
    from fedbourse.market.ports import Transaction
    from fedbourse.storage import SqlStore

TASK = "0" * 23 + "1"
ANN, BOB = "owner:ann", "owner:bob"
ACME = "buyer:acme"

CARD = TaskCard(
    goal="is it late? – “£1”",
    data="flights",
    scaling="abc",
    loss="logistic",
    query="gradient",
    compensation="proportional",
    reward=2.5,
    model="logistic",
    features=9,
    classes=2,
    dimension=9,
    step_size=0.1,
    rounds=5,
    samples=20,
    clip=1.0,
    aggregation="equal",
    vesting="by-round",
)


def a_task(task: str = TASK, *, buyer: str = ACME, state: State = State.OPEN) -> Task:
    return Task(id=task, buyer=buyer, card=CARD, state=state, created_ms=1)


def an_interest(owner: str, *, value: float | None = None, task: str = TASK) -> Interest:
    return Interest(task=task, owner=owner, value=value, salt="s", leaf="l", at_ms=1)


def a_reply(
    owner: str, *, budget: float | None = 0.5, tick: int = 0, task: str = TASK
) -> TickReply:
    return TickReply(task=task, tick=tick, owner=owner, budget=budget, salt="s", leaf="l", at_ms=2)


def an_exit(owner: str, *, tick: int = 0, reason: ExitReason = "left", task: str = TASK) -> Exit:
    return Exit(task=task, owner=owner, tick=tick, reason=reason, at_ms=3)


def repliers(store_unit: Transaction, tick: int = 0, *, task: str = TASK) -> list[str]:
    """Who replied to a tick, and is not out of the task."""
    return [o for (owners,) in store_unit.replies_in(task, tick, "owner") for o in owners]


def a_line(owner: str, *, position: int = 0, budget: float = 0.5, task: str = TASK) -> Allocation:
    return Allocation(
        task=task,
        owner=owner,
        position=position,
        budget=budget,
        payment=7,
        salt="s",
        leaf="l",
    )


def some_events(count: int, *, task: str = TASK) -> list[Event]:
    found: list[Event] = []
    end = (-1, CARD.digest)
    for number in range(count):
        event = next_event(task, "opened", {"n": number, "x": [0.1, "é"]}, at_ms=3, after=end)
        found.append(event)
        end = (event.sequence, event.hash)
    return found


def with_task(store: SqlStore, task: str = TASK) -> None:
    with store.begin() as tx:
        tx.add_task(a_task(task))


def deposit(store: SqlStore, account: str, amount: int, *, id: str | None = None) -> None:
    with store.begin() as tx:
        tx.post([Transfer(id or f"deposit {account}", "outside", account, amount)], at_ms=1)


def check_books(store: SqlStore) -> dict[str, int]:
    """Recompute every balance from the transfers, compare, and return them."""
    expected: defaultdict[str, int] = defaultdict(int)
    with store.read() as tx:
        for entry in tx.entries(limit=10**6):
            expected[entry.debit] -= entry.amount
            expected[entry.credit] += entry.amount
        held = dict(tx.balances(limit=10**6))
    assert {name: balance for name, balance in held.items() if balance} == {
        name: balance for name, balance in expected.items() if balance
    }
    assert sum(held.values()) == 0
    assert all(balance >= 0 for name, balance in held.items() if name != "outside")
    return held
