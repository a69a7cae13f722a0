"""What one caller sees of the market at one moment.

Pages and API read through it alone, so that who sees what is decided here and in the functions
that it hands the records to. Sums over owners leave the market in four ways only: the total that
each closed tick announces, a settlement's totals, what is left of the reward when a task has ended,
and what-ifs over five owners or more (``what_if``). Money that moves in between would tell single
owners' pay, so a buyer sees none of it (``task_money``). Counts of owners are no such sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbourse.errors import Conflict, NotAllowed
from fedbourse.market import evidence_outlook, evidence_report, monitoring, what_if
from fedbourse.market.commands import access, accounts, payouts
from fedbourse.market.document_types import FundFacts
from fedbourse.market.documents import TaskView, allocation_counts, task_documents
from fedbourse.market.heads import head_of_market, head_of_task
from fedbourse.market.lifecycle import ACTIVE, ENDED
from fedbourse.market.log_summary import summary_of
from fedbourse.market.previews import preview
from fedbourse.market.records import State
from fedbourse.market.service import FUND, escrow
from fedbourse.market.task_money import money_for, money_of, money_of_buyer, visible_escrow
from fedbourse.units import MicroCredits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedbourse.market.commands.payouts import Payout
    from fedbourse.market.document_types import (
        OwnerPage,
        TaskDocument,
    )
    from fedbourse.market.evidence_outlook import EvidenceOutlook
    from fedbourse.market.evidence_report import EvidenceReport, KeptRound, KeptUpdatePage
    from fedbourse.market.heads import Head
    from fedbourse.market.lifecycle import Command
    from fedbourse.market.log import Event
    from fedbourse.market.log_summary import LogSummary
    from fedbourse.market.monitoring import MonitoringPage
    from fedbourse.market.parties import Caller, Token
    from fedbourse.market.ports import Transaction
    from fedbourse.market.previews import Preview
    from fedbourse.market.records import Allocation, ClosedRound, Entry, Round, Task
    from fedbourse.market.service import Market
    from fedbourse.market.task_money import TaskMoney
    from fedbourse.market.what_if import WhatIfDocument
    from fedbourse.protocol.rotation import Rotation

_PAGE = 10_000
_REPLIES_A_PAGE = 1000


@dataclass(frozen=True)
class StatementRow:
    """A transfer as one account sees it."""

    entry: Entry
    moved: int
    """By how much the account changed."""
    balance: int
    """What it held afterwards."""


class View(TaskView):
    """The records of one moment, as one caller may see them."""

    def __init__(self, market: Market, tx: Transaction, caller: Caller | None) -> None:
        super().__init__(market, tx, caller)
        self._logs: dict[str, LogSummary] = {}

    # Tasks

    def bought_tasks(
        self, *, before: str | None = None, limit: int
    ) -> list[tuple[TaskDocument, Task, TaskMoney]]:
        """Return the caller's tasks as a buyer, newest first, and where the money of each is."""
        caller = self.authenticated
        tasks = self._tx.tasks(buyer=caller.party, before=before, limit=limit)
        money = money_of(self._tx, caller, tasks)
        return list(zip(task_documents(self._tx, tasks), tasks, money, strict=True))

    def own_tasks(self, *, before: str | None, limit: int) -> list[Task]:
        """Return the tasks that the caller is interested in or has left, newest first."""
        return self._tx.tasks(owner=self.authenticated.party, before=before, limit=limit)

    def events(self, task: str, *, after: int = -1, limit: int = _PAGE) -> list[Event]:
        """Return events of a task's log, which is public."""
        return self._tx.events(self.task(task).id, after=after, limit=limit)

    def log(self, task: str) -> LogSummary:
        """Return what a task's log says in numbers; a page may ask for it several times."""
        id = self.task(task).id
        if id not in self._logs:
            self._logs[id] = summary_of(self._tx, id)
        return self._logs[id]

    def openings(self, *, after: int, limit: int) -> list[Event]:
        """Return the events that opened tasks, in their order."""
        return self._tx.openings(after=after, limit=limit)

    def market_head(self) -> Head:
        """Return where the list of opened tasks ends."""
        return head_of_market(self._tx)

    def task_head(self, task: str) -> Head:
        """Return where a task's log ends."""
        return head_of_task(self._tx, self.caller, task)

    def closed_rounds(self, task: str, *, last: int | None = None) -> list[ClosedRound]:
        """Return how many updates each closed round, or each of the last ones, had."""
        return self._tx.closed_rounds(self.task(task).id, last=last)

    def waited_for(self, task: Task) -> dict[str, int]:
        """Return how many owners the next step of a task waits for."""
        tx = self._tx
        if task.state is State.OPEN:
            return {"interested": tx.count_interests(task.id)}
        if task.state is State.ANNOUNCED:
            return {"replies": tx.count_replies(task.id, task.tick), "asked": task.asked}
        if task.state is State.SETTLED:
            return allocation_counts(tx, task)
        return {}

    # A buyer's

    def what_if(self, task: str, *, rewards: Sequence[float], owners: int | None) -> WhatIfDocument:
        """Return what other rewards would buy."""
        return what_if.of_task(self._tx, self.authenticated, task, rewards=rewards, owners=owners)

    def preview(self, task: str, command: Command) -> Preview:
        """Return what a step would do."""
        return preview(self._tx, self.authenticated, self.task(task), command)

    def newest_model(self, task: str) -> Round:
        """Return the model of the round that is open or waits to open, or the last one.

        It is for the task's buyer.

        It was made of nothing but updates that carry their owners' noise: it costs nobody privacy.
        """
        stored, caller = self.task(task), self.authenticated
        if caller.party != stored.buyer:
            raise NotAllowed(f"the model is for the task's buyer; the caller is {caller.party}")
        if stored.state not in (State.TRAINING, State.COMPLETED):
            raise Conflict(f"a model needs a task in training; it is {stored.state.value}")
        return self._tx.round(stored.id, stored.round)

    def rotations(self) -> list[Rotation]:
        """Return how the market's key was replaced, since its first one."""
        return self._tx.rotations()

    # An owner's

    def monitoring(self, task: str, *, after: str, limit: int) -> MonitoringPage:
        """Return what updates say of devices over rounds; to an owner, of its own."""
        return monitoring.of_task(self._tx, self.authenticated, task, after=after, limit=limit)

    def earned(self) -> MicroCredits:
        """Return all that the caller has earned as an owner."""
        return self._tx.earned(self.authenticated.party)

    # Money

    def balance(self, account: str | None = None) -> MicroCredits:
        """Return what an account holds, the caller's own unless one is named.

        Of an escrow it is what the caller may see.
        """
        account = account or self.authenticated.party
        kind, _, task = account.partition(":")
        if kind == "escrow":
            return visible_escrow(self._tx, self.authenticated, self._tx.task(task))
        accounts.may_see(self.authenticated, account)
        return self._tx.balance(account)

    def leaving(self, account: str) -> MicroCredits:
        """Return what has left an account and is not known to have arrived."""
        self.balance(account)  # who may not see this may not see that
        return self._tx.leaving(account)

    def payouts(self, account: str, *, before: str | None = None, limit: int) -> list[Payout]:
        """Return an account's pay-outs, newest first, to its party and the operator."""
        return payouts.payouts_of(self._tx, self.authenticated, account, before=before, limit=limit)

    def payout_queue(self, *, after: str, limit: int) -> list[Payout]:
        """Return all pay-outs that are neither confirmed nor returned, oldest first."""
        return payouts.queue(self._tx, self.authenticated, after=after, limit=limit)

    def fund(self) -> FundFacts:
        """Return the fund as it is published now, and what it holds."""
        return FundFacts(**self._market.fund, balance_micro=self._tx.balance(FUND))

    def money(self, task: Task) -> TaskMoney | None:
        """Return where a task's money is to those who may see its escrow; else None."""
        return money_for(self._tx, self.caller, task)

    def bought(self) -> TaskMoney:
        """Return where the money of all of the caller's tasks is, as their buyer."""
        return money_of_buyer(self._tx, self.authenticated)

    def escrows(self, *, limit: int) -> list[tuple[Task, TaskMoney]]:
        """Return the caller's tasks that hold money in escrow, as their buyer."""
        caller = self.authenticated
        held = self._tx.tasks(states=ACTIVE, buyer=caller.party, limit=limit)
        return list(zip(held, money_of(self._tx, caller, held), strict=True))

    def statement(self, account: str, *, after: int, limit: int) -> list[Entry]:
        """Return an account's transfers in the order of posting."""
        accounts.may_see(self.authenticated, account)
        return self._tx.entries(account=account, after=after, limit=limit)

    def last_entries(
        self, account: str, *, page: int, rows: int, count_max: int | None
    ) -> tuple[list[StatementRow], int]:
        """Return one page of an account's transfers, newest first, and how many there are.

        Of more than ``count_max`` it is said that there is one more.
        """
        accounts.may_see(self.authenticated, account)
        newest, later = self._tx.last_entries(account, skip=(page - 1) * rows, limit=rows)
        balance = int(self._tx.balance(account)) - later
        statement = []
        for entry in newest:
            moved = entry.amount if entry.credit == account else -entry.amount
            statement.append(StatementRow(entry, moved, balance))
            balance -= moved
        at_most = None if count_max is None else count_max + 1
        return statement, self._tx.count_entries(account, at_most=at_most)

    def escrow_in_the_end(self, task: Task) -> MicroCredits:
        """Return what the escrow of a task that has ended holds: nothing, if all went well."""
        return self._tx.balance(escrow(task.id)) if task.state in ENDED else MicroCredits(0)

    def count_payments(self, task: Task) -> int:
        """Return how many transfers a task's escrow has had, once the task has ended."""
        return self._tx.count_entries(escrow(task.id)) if task.state in ENDED else 0

    # Evidence

    def evidence(self, task: str, *, after: str = "", limit: int | None = None) -> EvidenceReport:
        """Return what evidence found in a task that has ended."""
        return evidence_report.evidence_report(
            self._tx, self.authenticated, task, after=after, limit=limit
        )

    def evidence_outlook(self, task: str) -> EvidenceOutlook:
        """Return what evidence will be able to tell, before a task is trained."""
        return evidence_outlook.evidence_outlook(self._tx, self.authenticated, task)

    def kept_round(self, task: str, number: int) -> KeptRound:
        """Return the model of a closed round, from which evidence was computed."""
        return evidence_report.kept_round(self._tx, self.authenticated, task, number)

    def kept_updates(
        self, task: str, number: int, *, after: str = "", limit: int = 100
    ) -> KeptUpdatePage:
        """Return updates of a closed round, from which evidence was computed."""
        return evidence_report.kept_updates(
            self._tx, self.authenticated, task, number, after=after, limit=limit
        )

    def reference(self, task: str) -> bytes:
        """Return the reference records of a task that has ended."""
        return evidence_report.reference_of(self._tx, self.authenticated, task)

    # Auditors and the operator

    def owners(self, task: str, *, after: str, limit: int) -> OwnerPage:
        """Return what owners said and were promised; fewer of them where each has said much."""
        ticks = max(1, len(self.task(task).totals))
        limit = min(limit, max(1, _REPLIES_A_PAGE // ticks))
        return self.everybody(task, after=after, limit=limit)

    def allocations(self, task: str) -> list[Allocation]:
        """Return a settlement's allocations: all, an owner's own, or none to others."""
        id = self.task(task).id
        if self.sees_all:
            return self._tx.allocations(id)
        if self.caller is None or "owner" not in self.caller.scopes:
            return []
        own = self._tx.allocation(id, self.caller.party)
        return [] if own is None else [own]

    def has_round(self, task: str, number: int) -> bool:
        """Say whether a task has such a round, open, closed or waiting to open."""
        return self._tx.has_round(self.task(task).id, number)

    def counts(self, task: str) -> tuple[int, int]:
        """Return how many owners are interested in a task, and how many train."""
        stored = self.task(task)
        interested = stored.interested or self._tx.count_interests(stored.id)
        return interested, self.log(task).signed or 0

    def accounts(self, *, after: str, limit: int) -> list[tuple[str, MicroCredits]]:
        """Return every account by name, and what it holds."""
        self.authenticated.require("auditor", "operator")
        return self._tx.balances(after=after, limit=limit)

    def transfers(self, *, after: int, limit: int) -> list[Entry]:
        """Return every transfer in the order of posting."""
        self.authenticated.require("auditor", "operator")
        return self._tx.entries(after=after, limit=limit)

    def last_transfer(self) -> int:
        """Return the number of the newest transfer; 0 where there is none."""
        self.authenticated.require("auditor", "operator")
        return self._tx.last_transfer()

    def check_enrolment(self, token: str) -> None:
        """Refuse a one-time token that never was one."""
        access.check_enrolment(self._tx, token)

    def tokens(self, *, after: str, limit: int) -> list[Token]:
        """Return tokens as they are kept."""
        return access.tokens(self._tx, self.authenticated, after=after, limit=limit)
