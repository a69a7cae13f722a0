"""What the market needs of the world: a store with transactions, and a way for money in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from fedbourse.market.money_ports import Books, Payouts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from fedbourse.market.commands.payouts import Payout
    from fedbourse.market.log import Event
    from fedbourse.market.merkle import Place
    from fedbourse.market.parties import EnrolledDevice, Enrolment, Scope, Token
    from fedbourse.market.records import (
        Allocation,
        AllocationState,
        ClosedRound,
        DeviceEvidence,
        DeviceStatistics,
        Exit,
        Interest,
        RefusedUpdate,
        Response,
        Round,
        State,
        Task,
        TaskOrder,
        TaskVersion,
        TickReply,
        Update,
    )
    from fedbourse.protocol.rotation import Rotation
    from fedbourse.units import MicroCredits

Lock = Literal["none", "share", "change"]
"""none: just read; share: nobody changes it before this transaction ends; change: nor shares it."""
Said = Literal["interests", "allocations"]
"""What there is one of for each owner and task."""
AT_ONCE = 1 << 16
"""How many owners' records are in memory at a time where all of them are read."""


class Tasks(Protocol):
    """Tasks and their logs. What is not there raises ``NotFound``."""

    def add_task(self, task: Task) -> None:
        """Store a new task."""

    def task(self, task: str, *, lock: Lock = "none") -> Task:
        """Return a task."""

    def save_task(self, task: Task) -> None:
        """Store a task as it now stands; its card, buyer and time of making never change."""

    def tasks(
        self,
        *,
        states: Sequence[State] = (),
        buyer: str | None = None,
        owner: str | None = None,
        seen_by: str | None = None,
        before: str | None = None,
        limit: int,
    ) -> list[Task]:
        """Return tasks, newest first: in these states (all if empty), those made before one.

        An owner's tasks are those that it is interested in or has withdrawn from. Those that were
        never opened are left out, but those of the buyer who is ``seen_by``; None leaves all in.
        """

    def search_tasks(
        self,
        *,
        states: Sequence[State] = (),
        seen_by: str | None = None,
        words: Sequence[str] = (),
        order: TaskOrder,
        skip: int,
        limit: int,
    ) -> list[Task]:
        """Return tasks that mention all words, in an order, after those that are skipped."""

    def count_tasks(
        self, *, states: Sequence[State] = (), seen_by: str | None = None, words: Sequence[str] = ()
    ) -> int:
        """Return how many tasks mention all words."""

    def active_tasks(self) -> list[Task]:
        """Return the tasks that are open, announced, settled or in training."""

    def versions(self, tasks: Collection[str]) -> dict[str, TaskVersion]:
        """Return how far these tasks are; those that do not exist are left out."""

    def append_event(self, event: Event) -> None:
        """Add an event; a second one with its sequence number raises ``Conflict``."""

    def events(self, task: str, *, after: int = -1, limit: int) -> list[Event]:
        """Return the events after a sequence number, in order."""

    def add_opening(self, number: int, task: Task) -> None:
        """Store that the task whose last event this is was opened as this one of all tasks."""

    def last_opening(self, *, lock: bool = False) -> Event | None:
        """Return the event that opened a task last; locked, no other task opens meanwhile."""

    def openings(self, *, after: int = -1, limit: int) -> list[Event]:
        """Return the events that opened tasks, in the order of opening, after a number."""


class ParticipationRecords(Protocol):
    """What owners said and were promised. Lists are in the order of owners' names (code points)."""

    def put_interest(self, interest: Interest) -> None:
        """Store an interest, in place of an earlier one of the same owner."""

    def interest(self, task: str, owner: str) -> Interest | None:
        """Return an owner's interest."""

    def interests(self, task: str, *, after: str = "", limit: int | None = None) -> list[Interest]:
        """Return those whose owner's name comes after this one."""

    def count_interests(self, task: str) -> int:
        """Return how many there are."""

    def counts_of_interests(self, tasks: Collection[str]) -> dict[str, int]:
        """Return how many there are in each task; where there are none it is left out.

        Of very many it may be how many there were seconds ago.
        """

    def columns(
        self, said: Said, task: str, *names: str, at_once: int = AT_ONCE
    ) -> Iterator[tuple[tuple[Any, ...], ...]]:
        """Return these columns of all owners' interests or allocations, so many at a time.

        None stands for what was withheld or erased. Whoever reads twice sees the same where the
        task is locked, or the transaction only reads.
        """

    def count_reported(self, task: str) -> int:
        """Return how many owners have told their values."""

    def report_number(self, task: str, number: int) -> tuple[int, str]:
        """Return when, and by whom, this one of the values that are told came in; 1 is first."""

    def put_reply(self, reply: TickReply) -> None:
        """Store a reply, in place of an earlier one to the same tick."""

    def replies_of(self, task: str, owner: str) -> list[TickReply]:
        """Return an owner's replies, by tick."""

    def replies(self, task: str, owners: Collection[str]) -> dict[str, list[TickReply]]:
        """Return the replies of several owners, each by tick."""

    def replies_in(
        self, task: str, tick: int, *names: str, at_once: int = AT_ONCE
    ) -> Iterator[tuple[tuple[Any, ...], ...]]:
        """Return these columns of all replies to a tick of owners who are not out of the task."""

    def count_replies(self, task: str, tick: int) -> int:
        """Return how many owners have replied to this tick."""

    def count_asked(self, task: str, *, total_budget: float) -> int:
        """Return how many owners must reply to this total: not out, and no zero below it."""

    def miss_tick(self, task: str, *, tick: int, total_budget: float, at_ms: int) -> int:
        """Close a tick: who had to reply and did not is out; return how many.

        Who replied zero need not reply to this total or a larger one any more.
        """

    def add_exit(self, exit: Exit) -> None:
        """Store that an owner is out of a task, unless it is already."""

    def leave_task(self, exit: Exit, *, from_interests: bool) -> None:
        """Store that an owner has left, and forget its replies; its interest too where asked.

        The responses to its earlier writes about the task are forgotten as well. The hashes of
        replies to closed ticks stay: the log vouches for them.
        """

    def exit(self, task: str, owner: str) -> Exit | None:
        """Return how an owner got out of a task; None where it did not."""

    def exits(self, task: str, owners: Collection[str]) -> dict[str, Exit]:
        """Return how several owners got out of a task; who did not is left out."""

    def count_exits(self, task: str) -> int:
        """Return how many of those whose interest is kept are out."""

    def add_allocations(self, allocations: Iterable[Allocation]) -> None:
        """Store a settlement: up to a million allocations."""

    def allocation(self, task: str, owner: str, *, lock: Lock = "none") -> Allocation | None:
        """Return an owner's allocation."""

    def allocations(
        self, task: str, *, after: str = "", limit: int | None = None
    ) -> list[Allocation]:
        """Return allocations whose owner's name comes after this one."""

    def count_allocations(self, task: str, *, state: AllocationState | None = None) -> int:
        """Return how many allocations there are, or how many are in a state."""

    def drop_allocations(self, task: str) -> None:
        """Forget a settlement that is made again, with the nodes of its tree."""

    def decide_allocation(
        self, task: str, owner: str, state: AllocationState, *, signature: str | None = None
    ) -> None:
        """Store that an owner signed or declined."""

    def deliver(
        self, task: str, owner: str, *, delivered: int, earned: MicroCredits, held: MicroCredits
    ) -> None:
        """Store how many rounds an owner has delivered, what it has earned, and what is held."""

    def judge_allocation(
        self, task: str, owner: str, state: AllocationState, *, earned: int, held: int
    ) -> None:
        """Store whether an owner is still asked, what it has earned, and what is held."""

    def earn(self, task: str, owner: str, amount: int) -> None:
        """Add to what an owner has earned."""

    def earned(self, owner: str) -> MicroCredits:
        """Return all that an owner has earned, in all tasks."""

    def erase(self, task: str, owner: str) -> None:
        """Forget an owner's value, budgets and salts in a task; the hashes and payment stay."""


class Trees(Protocol):
    """The Merkle trees over settlements: see ``merkle``."""

    def add_nodes(self, task: str, nodes: Iterable[tuple[Place, str]]) -> None:
        """Store the nodes over a settlement's allocations."""

    def nodes(self, task: str, places: Collection[Place]) -> dict[Place, str]:
        """Return the nodes at these places."""

    def leaves_near(self, allocation: Allocation, positions: range) -> list[str]:
        """Return the leaves at those of these positions, around an allocation's, that exist."""

    def last_position(self, task: str) -> int:
        """Return the position of a settlement's last allocation."""


class Rounds(Protocol):
    """Training: models asked about, and updates."""

    def add_round(self, round: Round) -> None:
        """Store a new round."""

    def open_round(self, round: Round) -> None:
        """Store the request of a round that waited to open, or raise ``NotFound``."""

    def round(self, task: str, number: int) -> Round:
        """Return a round, or raise ``NotFound``."""

    def sign_round(self, task: str, number: int, signature: str) -> None:
        """Store another signature of a round request, or raise ``NotFound``."""

    def has_round(self, task: str, number: int) -> bool:
        """Say whether there is such a round, open, closed or waiting to open."""

    def request_hash(self, task: str, number: int) -> str:
        """Return the hash of a round request, or raise ``NotFound``."""

    def close_round(
        self, task: str, number: int, *, at_ms: int, updates: int, keep: bool = False
    ) -> None:
        """Store that a round has ended, and drop its model and its updates' vectors, or keep them.

        Auditors recompute evidence from what is kept.
        """

    def add_update(self, update: Update) -> None:
        """Store an update; a second one of the same owner and round raises ``Conflict``."""

    def update(self, task: str, round: int, owner: str) -> Update | None:
        """Return an owner's update, but its vector."""

    def last_update(self, task: str, owner: str) -> Update | None:
        """Return the owner's update to the latest round that it delivered, but its vector."""

    def updates(
        self, task: str, round: int, *, after: str = "", limit: int | None = None
    ) -> list[Update]:
        """Return the updates of a round of owners whose name comes after this one, by name.

        Their vectors are left out.
        """

    def vectors(
        self,
        task: str,
        round: int,
        *,
        at_once: int,
        after: str = "",
        limit: int | None = None,
    ) -> Iterator[tuple[str, bytes]]:
        """Return owners and the vectors of their updates, by name, so many of them in memory.

        Only those of owners who come after a name, and so many at most.
        """

    def count_updates(self, task: str, round: int) -> int:
        """Return how many came."""

    def closed_rounds(self, task: str, *, last: int | None = None) -> list[ClosedRound]:
        """Return the rounds that are closed, or the last ones of them, in order."""

    def put_refused_update(self, refused: RefusedUpdate) -> None:
        """Store that an update was refused, in place of an earlier one to the same round."""

    def count_refused(self, task: str) -> dict[str, int]:
        """Return how many updates were refused for each reason, whosever they were."""

    def refused_updates(self, task: str, owners: Collection[str]) -> dict[str, dict[str, int]]:
        """Return how many of these owners' updates were refused, by owner and reason."""

    def device_statistics(
        self, task: str, owners: Collection[str] | None = None
    ) -> list[DeviceStatistics]:
        """Return the sums of those owners, or of all, who sent updates, by name."""

    def put_device_statistics(self, device_statistics: Iterable[DeviceStatistics]) -> None:
        """Store sums, in place of earlier ones of the same owners."""


class EvidenceRecords(Protocol):
    """Reference records, and what updates have shown beside them."""

    def put_reference(self, task: str, content: bytes) -> None:
        """Store a task's reference file, in place of an earlier one."""

    def has_reference(self, task: str) -> bool:
        """Say whether a task has a reference file."""

    def reference(self, task: str) -> bytes:
        """Return a task's reference file, or raise ``NotFound``."""

    def add_reference_gradient(self, task: str, round: int, content: bytes) -> None:
        """Store a round's reference gradient; a second one raises ``Conflict``."""

    def reference_gradient(self, task: str, round: int) -> bytes | None:
        """Return a round's reference gradient; None where none was sent."""

    def first_reference_gradient(self, task: str) -> bytes | None:
        """Return that of the first round for which one was sent."""

    def device_evidence(self, task: str, block: int | None = None) -> list[DeviceEvidence]:
        """Return what devices have shown in one block of rounds, or in all, by block and owner."""

    def put_device_evidence(self, device_evidence: Iterable[DeviceEvidence]) -> None:
        """Store it, in place of what they had shown in the same block before."""


class Identities(Protocol):
    """Who may call, and what was already said."""

    def add_token(self, token: Token) -> None:
        """Store a token."""

    def token_with(self, hash: str) -> Token | None:
        """Return the token with this hash."""

    def tokens(self, *, after: str = "", limit: int) -> list[Token]:
        """Return tokens by id."""

    def live_tokens(self, scope: Scope, *, at_ms: int, limit: int) -> list[str]:
        """Return the ids of tokens with a scope that have not ended, by id."""

    def revoke_token(self, token: str, *, at_ms: int) -> int:
        """End a token, or raise ``NotFound``; return when it ended: the first time counts."""

    def add_enrolment(self, enrolment: Enrolment) -> None:
        """Store a one-time token."""

    def has_enrolment(self, hash: str) -> bool:
        """Say whether there ever was a one-time token with this hash, used and old ones too."""

    def use_enrolment(self, hash: str, *, at_ms: int) -> str | None:
        """Use up a one-time token and return its owner; None where it is unknown, old or used."""

    def put_device(self, device: EnrolledDevice) -> None:
        """Store a device, and retire the owner's other ones."""

    def device(self, device: str) -> EnrolledDevice | None:
        """Return a device."""

    def add_rotation(self, rotation: Rotation) -> None:
        """Store that the market has another key; a key has one successor."""

    def rotations(self) -> list[Rotation]:
        """Return the market's keys, as each took the place of the one before, the oldest first."""

    def remember_nonce(self, device: str, nonce: str, *, expires_ms: int) -> bool:
        """Store a nonce; False where the device has used it before."""

    def end_session(self, session: str, *, expires_ms: int) -> None:
        """Let a session of a browser count no more, which would have ended by itself then."""

    def has_ended(self, session: str) -> bool:
        """Say whether a session was ended before its time."""

    def claim(self, caller: str, key: str, fingerprint: str, *, expires_ms: int) -> Response | None:
        """Reserve a caller's key; where it was used before, return the response.

        Of several transactions that claim the same key at once, one goes on and the others wait
        for its end.
        """

    def keep_response(self, caller: str, key: str, response: Response) -> None:
        """Store the response, in the transaction that claimed the key."""

    def purge(self, *, now_ms: int) -> None:
        """Forget what has expired: nonces, sessions, and responses to writes."""


class Transaction(
    Tasks,
    ParticipationRecords,
    Trees,
    Rounds,
    EvidenceRecords,
    Books,
    Payouts,
    Identities,
    Protocol,
):
    """One transaction."""

    def savepoint(self) -> AbstractContextManager[None]:
        """Undo what is done inside where it raises, and leave the rest of the transaction."""

    def after_commit(self, work: Callable[[], None]) -> None:
        """Do this once the transaction has ended and is on disk; never where it is undone."""


class Store(Protocol):
    """Durable records. A transaction that has ended is on disk."""

    def begin(self) -> AbstractContextManager[Transaction]:
        """Open a transaction: all of it counts at its end, nothing where it raises."""

    def read(self) -> AbstractContextManager[Transaction]:
        """Open a transaction that only reads, and sees one moment."""


class Payments(Protocol):
    """Where a bank or payment provider goes; nobody calls it while a transaction is open."""

    def received(self, reference: str) -> tuple[str, MicroCredits]:
        """Return for whom money with this reference came in, and how much; or ``NotFound``."""

    def pay(self, payout: Payout) -> None:
        """Hand money over; doing it twice with one id must pay once."""

    def has_paid(self, payout: str) -> bool:
        """Say whether money was handed over under this id, also by an attempt that failed."""
