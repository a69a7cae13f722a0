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

from fedbourse.errors import Conflict, NotAllowed, NotSignedIn
from fedbourse.market import access, accounts, documents, drift, payouts, what_if
from fedbourse.market.heads import head_of_market, head_of_task
from fedbourse.market.lifecycle import ACTIVE, ENDED
from fedbourse.market.log_summary import summary_of
from fedbourse.market.previews import preview
from fedbourse.market.service import FUND, escrow, show
from fedbourse.market.task import State
from fedbourse.market.task_money import money_for, money_of
from fedbourse.units import MicroCredits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedbourse.market.documents import Document
    from fedbourse.market.heads import Head
    from fedbourse.market.lifecycle import Command
    from fedbourse.market.log import Event
    from fedbourse.market.log_summary import LogSummary
    from fedbourse.market.parties import Caller, Token
    from fedbourse.market.payouts import Payout
    from fedbourse.market.ports import Unit
    from fedbourse.market.previews import Preview
    from fedbourse.market.service import Market
    from fedbourse.market.task import ClosedRound, Entry, Line, Round, Task, TaskOrder
    from fedbourse.market.task_money import TaskMoney
    from fedbourse.wire.rotation import Rotation

_PAGE = 10_000


@dataclass(frozen=True)
class StatementRow:
    """A transfer as one account sees it."""

    entry: Entry
    moved: int
    """By how much the account changed."""
    balance: int
    """What it held afterwards."""


class View:
    """The records of one moment, as one caller may see them; None is a stranger."""

    def __init__(self, market: Market, unit: Unit, caller: Caller | None) -> None:
        """Look at the records of a transaction that only reads."""
        self._market, self._unit, self.caller = market, unit, caller

    @property
    def known(self) -> Caller:
        """The caller, where it must have proved who it is."""
        if self.caller is None:
            raise NotSignedIn("this needs a token (Authorization: Bearer) or a device's signature")
        return self.caller

    @property
    def sees_all(self) -> bool:
        """Whether every owner's line and every transfer is the caller's to see."""
        return self.caller is not None and bool(self.caller.scopes & {"auditor", "operator"})

    # Tasks

    def task(self, task: str) -> Task:
        """Return a task, if the caller may know of it."""
        return show(self._unit.task(task), self.caller)

    def task_document(self, task: str) -> Document:
        """Return what everybody may see of one task."""
        return documents.one_task(self._unit, self.caller, task)

    def tasks(self, *, state: State | None, before: str | None, limit: int) -> Document:
        """Return tasks, newest first."""
        return documents.tasks(self._unit, self.caller, state=state, before=before, limit=limit)

    def found_tasks(
        self, *, state: State | None, words: Sequence[str], order: TaskOrder, page: int, rows: int
    ) -> tuple[list[Document], int]:
        """Return one page of the tasks that mention all words, and how many there are."""
        return documents.found_tasks(
            self._unit, self.caller, state=state, words=words, order=order, page=page, rows=rows
        )

    def bought_tasks(self, *, limit: int) -> list[tuple[Document, Task, TaskMoney]]:
        """Return the caller's tasks as a buyer, newest first, and where the money of each is."""
        caller = self.known
        found = self._unit.tasks(buyer=caller.party, limit=limit)
        shown = documents.task_documents(self._unit, found)
        money = money_of(self._unit, caller, found)
        return list(zip(shown, found, money, strict=True))

    def own_tasks(self, *, before: str | None, limit: int) -> list[Task]:
        """Return the tasks that the caller is interested in or has left, newest first."""
        return self._unit.tasks(owner=self.known.party, before=before, limit=limit)

    def card(self, task: str) -> Document:
        """Return a task's card with its hash, and the fund as it was pinned."""
        return documents.published_card(self._market, self._unit, self.caller, task)

    def events(self, task: str, *, after: int = -1, limit: int = _PAGE) -> list[Event]:
        """Return events of a task's log, which is public."""
        return self._unit.events(self.task(task).id, after=after, limit=limit)

    def log(self, task: str) -> LogSummary:
        """Return what a task's log says in numbers."""
        return summary_of(self._unit, self.task(task).id)

    def openings(self, *, after: int, limit: int) -> list[Event]:
        """Return the events that opened tasks, in their order."""
        return self._unit.openings(after=after, limit=limit)

    def market_head(self) -> Head:
        """Return where the list of opened tasks ends."""
        return head_of_market(self._unit)

    def task_head(self, task: str) -> Head:
        """Return where a task's log ends."""
        return head_of_task(self._unit, self.caller, task)

    def closed_rounds(self, task: str, *, last: int | None = None) -> list[ClosedRound]:
        """Return how many owners answered each closed round, or each of the last ones."""
        return self._unit.closed_rounds(self.task(task).id, last=last)

    def waited_for(self, task: Task) -> dict[str, int]:
        """Return how many owners the next step of a task waits for."""
        unit = self._unit
        if task.state is State.OPEN:
            return {"interested": unit.count_interests(task.id)}
        if task.state is State.ANNOUNCED:
            return {"replies": unit.count_replies(task.id, task.tick), "asked": task.asked}
        if task.state is State.SETTLED:
            return {
                "offered": unit.count_lines(task.id, state="offered"),
                "signed": unit.count_lines(task.id, state="signed"),
                "declined": unit.count_lines(task.id, state="declined"),
            }
        return {}

    # A buyer's

    def report(self, task: str) -> Document:
        """Return a task's totals to its buyer, auditors and the operator."""
        return documents.report(self._unit, self.known, task)

    def what_if(self, task: str, *, rewards: Sequence[float], owners: int | None) -> Document:
        """Return what other rewards would buy."""
        return what_if.of_task(self._unit, self.known, task, rewards=rewards, owners=owners)

    def preview(self, task: str, command: Command) -> Preview:
        """Return what a step would do."""
        return preview(self._unit, self.known, self.task(task), command)

    def model(self, task: str) -> Round:
        """Return the model of a completed task to its buyer and the operator."""
        return documents.model(self._unit, self.known, task)

    def newest_model(self, task: str) -> Round:
        """Return the model that the open round asks about, or the last one, to the task's buyer.

        It was made of nothing but answers that carry their owners' noise: it costs nobody privacy.
        """
        found = self.task(task)
        if self.known.party != found.buyer:
            raise NotAllowed(f"the model is for the task's buyer; the caller is {self.known.party}")
        if found.state not in (State.TRAINING, State.COMPLETED):
            raise Conflict(f"a model needs a task in training; it is {found.state.value}")
        return self._unit.round(found.id, found.round)

    def rotations(self) -> list[Rotation]:
        """Return how the market's key was replaced, since its first one."""
        return self._unit.rotations()

    # An owner's

    def mine(self, task: str) -> Document:
        """Return all that the market keeps of the caller in a task."""
        return documents.mine(self._market, self._unit, self.known, task)

    def proof(self, task: str) -> Document:
        """Return the path from the caller's line to the root in the log."""
        return documents.proof(self._unit, self.known, task)

    def query(self, task: str, *, after: int) -> Round | None:
        """Return the open round to an owner who signed."""
        return documents.query(self._unit, self.known, task, after=after)

    def drift(self, task: str, *, after: str, limit: int) -> Document:
        """Return what answers say of devices over rounds; to an owner, of its own."""
        return drift.of_task(self._unit, self.known, task, after=after, limit=limit)

    def earned(self) -> MicroCredits:
        """Return all that escrow ever paid to the caller."""
        return self._unit.earned(self.known.party)

    # Money

    def balance(self, account: str | None = None) -> MicroCredits:
        """Return what an account holds, the caller's own unless one is named."""
        return documents.visible_balance(self._unit, self.known, account or self.known.party)

    def leaving(self, account: str) -> MicroCredits:
        """Return what has left an account and is not known to have arrived."""
        self.balance(account)  # who may not see this may not see that
        return self._unit.leaving(account)

    def payouts(self, account: str, *, before: str | None = None, limit: int) -> list[Payout]:
        """Return an account's pay-outs, newest first, to its party and the operator."""
        return payouts.payouts_of(self._unit, self.known, account, before=before, limit=limit)

    def payout_queue(self, *, after: str, limit: int) -> list[Payout]:
        """Return all pay-outs that are neither confirmed nor returned, oldest first."""
        return payouts.queue(self._unit, self.known, after=after, limit=limit)

    def fund(self) -> Document:
        """Return the fund as it is published now, and what it holds."""
        return self._market.fund | {"balance_micro": self._unit.balance(FUND)}

    def money(self, task: Task) -> TaskMoney | None:
        """Return where a task's money is to those who may see its escrow; else None."""
        return money_for(self._unit, self.caller, task)

    def escrows(self, *, limit: int) -> list[tuple[Task, TaskMoney]]:
        """Return the caller's tasks that hold money in escrow, as their buyer."""
        caller = self.known
        held = self._unit.tasks(states=ACTIVE, buyer=caller.party, limit=limit)
        return list(zip(held, money_of(self._unit, caller, held), strict=True))

    def statement(self, account: str, *, after: int, limit: int) -> list[Entry]:
        """Return an account's transfers in the order of posting."""
        accounts.may_see(self.known, account)
        return self._unit.entries(account=account, after=after, limit=limit)

    def last_entries(self, account: str, *, page: int, rows: int) -> tuple[list[StatementRow], int]:
        """Return one page of an account's transfers, newest first, and how many there are."""
        accounts.may_see(self.known, account)
        newest, later = self._unit.last_entries(account, skip=(page - 1) * rows, limit=rows)
        balance = int(self._unit.balance(account)) - later
        shown = []
        for entry in newest:
            moved = entry.amount if entry.target == account else -entry.amount
            shown.append(StatementRow(entry, moved, balance))
            balance -= moved
        return shown, self._unit.count_entries(account)

    def escrow_in_the_end(self, task: Task) -> MicroCredits:
        """Return what the escrow of a task that has ended holds: nothing, if all went well."""
        return self._unit.balance(escrow(task.id)) if task.state in ENDED else MicroCredits(0)

    def count_payments(self, task: Task) -> int:
        """Return how many transfers a task's escrow has had, once the task has ended."""
        return self._unit.count_entries(escrow(task.id)) if task.state in ENDED else 0

    # Auditors and the operator

    def owners(self, task: str, *, after: str, limit: int) -> Document:
        """Return what owners said and were promised."""
        return documents.everybody(self._unit, self.known, task, after=after, limit=limit)

    def lines(self, task: str) -> list[Line]:
        """Return a settlement's lines: all of them, an owner's own, or none to others."""
        found = self.task(task)
        if self.sees_all:
            return self._unit.lines(found.id)
        if self.caller is None or "owner" not in self.caller.scopes:
            return []
        own = self._unit.line(found.id, self.caller.party)
        return [] if own is None else [own]

    def answers(self, task: str, *, round: int, after: str, limit: int) -> Document:
        """Return who answered a round, with the hash of each answer."""
        return documents.round_answers(
            self._unit, self.known, task, round=round, after=after, limit=limit
        )

    def has_round(self, task: str, number: int) -> bool:
        """Say whether a round of a task was ever opened."""
        return self._unit.has_round(self.task(task).id, number)

    def counts(self, task: str) -> tuple[int, int]:
        """Return how many owners are interested in a task, and how many have signed."""
        id = self.task(task).id
        return self._unit.count_interests(id), self._unit.count_lines(id, state="signed")

    def accounts(self, *, after: str, limit: int) -> list[tuple[str, MicroCredits]]:
        """Return every account by name, and what it holds."""
        self.known.require("auditor", "operator")
        return self._unit.balances(after=after, limit=limit)

    def transfers(self, *, after: int, limit: int) -> list[Entry]:
        """Return every transfer in the order of posting."""
        self.known.require("auditor", "operator")
        return self._unit.entries(after=after, limit=limit)

    def last_transfer(self) -> int:
        """Return the number of the newest transfer; 0 where there is none."""
        self.known.require("auditor", "operator")
        return self._unit.last_transfer()

    def check_enrolment(self, token: str) -> None:
        """Refuse a one-time token that never was one."""
        access.check_enrolment(self._unit, token)

    def tokens(self, *, after: str, limit: int) -> list[Token]:
        """Return tokens as they are kept."""
        return access.tokens(self._unit, self.known, after=after, limit=limit)
