"""Devices on a Flower federation: stock SuperNodes, or virtual ones on a Ray cluster.

The buyer's ServerApp holds this engine. It sends round requests over Flower's Grid to the nodes of
a roster, and takes the updates that come in time. A node is identified by its registered public key
where the roster has one; a name that a node gives itself counts only for an owner without a key.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.errors import InvalidInput, MissingExtra, Refused, Unreachable
from fedbourse.learning.engines.engine import Updates
from fedbourse.learning.update_check import checked_update
from fedbourse.units import number as checked_number

try:
    from flwr.app import ConfigRecord, Message, RecordDict
except ImportError:
    raise MissingExtra(
        "the flower engine needs flwr, which is not installed: pip install 'fedbourse[flower]'"
    ) from None

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr.serverapp import Grid

    from fedbourse.game.columns import FloatArray
    from fedbourse.privacy.terms import Terms

WHO, ROUND_REQUEST, UPDATE, REFUSAL = "who", "round-request", "update", "refusal"
"""The names of the records that messages carry."""

_FIRST_PAUSE_S = 0.01  # grows until poll_s: virtual nodes reply at once, real ones in seconds
_LOOK_S = 1.0  # between two looks at which nodes there are


@dataclass(frozen=True)
class Seat:
    """One owner of the roster: what it sold, and the key of its node where that is known."""

    owner: str
    terms: Terms
    public_key: bytes | None = None


@dataclass
class _Round:
    """One round as far as it got."""

    number: int
    model: bytes
    requests: dict[str, int] = field(default_factory=dict)
    """The seat that each message was sent to."""
    updates: dict[int, FloatArray] = field(default_factory=dict)
    refused: dict[int, Refused] = field(default_factory=dict)

    def is_open(self, seat: int) -> bool:
        """Say whether a seat has neither sent an update nor refused."""
        return seat not in self.updates and seat not in self.refused


class FlowerEngine:
    """Sends round requests to the nodes of a roster over a Grid."""

    def __init__(
        self,
        grid: Grid,
        seats: Sequence[Seat],
        *,
        round_s: float = 60.0,
        join_s: float = 60.0,
        poll_s: float = 0.2,
        at_least: int = 1,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take a roster without repeated names or keys.

        A round lasts ``round_s`` at most, and the first one ``join_s`` more, for nodes that still
        have to come. A node that let a round pass still gets requests, but is not waited for until
        it replies. A round with fewer than ``at_least`` updates does not count: it can be repeated.
        """
        _check(seats)
        self._grid, self._seats = grid, list(seats)
        self._round_s = checked_number("round_s", round_s, above=0)
        self._join_s, self._poll_s = checked_number("join_s", join_s, at_least=0), poll_s
        self._at_least, self._clock, self._sleep = at_least, clock, sleep
        self._nodes: dict[int, int] = {}  # seat -> node
        self._greeted: set[int] = set()
        self._greetings: dict[str, int] = {}  # message -> node
        self._late: dict[str, int] = {}  # message of a round that is over -> seat
        self._silent: set[int] = set()  # nodes
        self._join_end: float | None = None
        self._next_look = 0.0

    @property
    def scales(self) -> FloatArray:
        """Each owner's noise, a coordinate, as its terms say."""
        return np.array([seat.terms.scale for seat in self._seats])

    def ask(self, number: int, parameters: FloatArray) -> Updates:
        """Ask every node that is there, and return what came in time and passed the checks."""
        round = _Round(int(number), np.ascontiguousarray(parameters).astype("<f8").tobytes())
        start = self._clock()
        end = start + self._round_s
        if self._join_end is None:
            self._join_end = start + self._join_s
            end += self._join_s
        self._next_look, pause_s = start, _FIRST_PAUSE_S
        while True:
            self._look_around()
            for seat in sorted(set(self._nodes) - set(round.requests.values())):
                self._send(round, seat)
            pending = [m for m, seat in round.requests.items() if round.is_open(seat)]
            for message, reply in self._replies([*pending, *self._late, *self._greetings]):
                if message in self._greetings:
                    self._met(self._greetings.pop(message), reply)
                elif message in self._late:
                    self._silent.discard(self._nodes.get(self._late.pop(message), 0))
                else:
                    self._take(round, round.requests[message], reply)
            if self._clock() >= end or self._is_complete(round):
                break
            self._sleep(pause_s)
            pause_s = min(self._poll_s, 1.5 * pause_s)
        for message, seat in round.requests.items():
            if round.is_open(seat):
                self._late[message] = seat
                self._silent.add(self._nodes.get(seat, 0))
        return self._collected(round)

    def _look_around(self) -> None:
        """Find nodes that came or went; ask new ones without a known key who they are."""
        if self._clock() < self._next_look:
            return
        self._next_look = self._clock() + _LOOK_S
        nodes = {int(node.node_id): bytes(node.public_key) for node in self._grid.get_nodes()}
        self._nodes = {seat: node for seat, node in self._nodes.items() if node in nodes}
        keys = {seat.public_key: i for i, seat in enumerate(self._seats) if seat.public_key}
        for node, key in nodes.items():
            if key in keys:
                self._nodes[keys[key]] = node
            elif node not in self._greeted and len(keys) < len(self._seats):
                self._greeted.add(node)
                content = RecordDict({WHO: ConfigRecord({"task": self._seats[0].terms.task})})
                message = self._push(content, node, "query")
                if message:
                    self._greetings[message] = node

    def _met(self, node: int, reply: Any) -> None:
        """Believe a node its name only where no key says who that owner is."""
        name = _item(reply, WHO, "owner")
        for i, seat in enumerate(self._seats):
            if seat.owner == name and seat.public_key is None:
                self._nodes[i] = node  # the last one counts: a node that was started again

    def _send(self, round: _Round, seat: int) -> None:
        terms = self._seats[seat].terms
        request = ConfigRecord(
            {
                "task": terms.task,
                "terms": terms.digest,
                "round": round.number,
                "model": round.model,
            }
        )
        content = RecordDict({ROUND_REQUEST: request})
        message = self._push(content, self._nodes[seat], "train", group=str(round.number))
        if message:
            round.requests[message] = seat
        else:
            del self._nodes[seat]

    def _push(self, content: RecordDict, node: int, kind: str, *, group: str = "") -> str | None:
        message = Message(content, node, kind, ttl=self._round_s + self._join_s, group_id=group)
        # One by one: where several are pushed, a Grid may leave out those that it could not.
        return next((str(name) for name in self._grid.push_messages([message]) if name), None)

    def _replies(self, messages: list[str]) -> list[tuple[str, Any]]:
        if not messages:
            return []
        # A reply is given out once; asking for it again gives an error in its place.
        pulled = self._grid.pull_messages(messages)
        replies = [(reply.metadata.reply_to_message_id, reply) for reply in pulled]
        return [(message, reply) for message, reply in replies if message in set(messages)]

    def _take(self, round: _Round, seat: int, reply: Any) -> None:
        """Sort a reply in: an update that passes, or why there is none."""
        self._silent.discard(self._nodes.get(seat, 0))
        if reply.has_error():
            round.refused[seat] = Refused("no-update", f"{reply.error.reason}"[:400])
        elif (reason := _item(reply, REFUSAL, "reason")) is not None:
            sentence = _item(reply, REFUSAL, "sentence")
            round.refused[seat] = Refused(f"{reason}"[:60], f"{sentence}"[:400])
        else:
            try:
                vector = _item(reply, UPDATE, "vector")
                round.updates[seat] = checked_update(self._seats[seat].terms, vector)
            except InvalidInput as error:
                round.refused[seat] = Refused("bad-update", str(error))

    def _is_complete(self, round: _Round) -> bool:
        """Say whether there is nobody left to wait for."""
        assert self._join_end is not None
        joining = self._clock() < self._join_end and len(self._nodes) < len(self._seats)
        awaited = {*round.requests.values(), *self._nodes}
        awaited -= {seat for seat, node in self._nodes.items() if node in self._silent}
        return not joining and not any(map(round.is_open, awaited))

    def _collected(self, round: _Round) -> Updates:
        updates, refused = round.updates, round.refused
        if len(updates) < self._at_least:
            why = "; ".join(f"{self._seats[i].owner}: {refused[i]}" for i in sorted(refused)[:3])
            raise Unreachable(
                f"round {round.number} has {len(updates)} updates of {len(self._seats)} owners, "
                f"and needs {self._at_least}{f' ({why})' if why else ''}; it can be repeated"
            )
        owners = sorted(updates)
        return Updates(
            np.array(owners, dtype=np.int64), np.stack([updates[i] for i in owners]), refused
        )


def _check(seats: Sequence[Seat]) -> None:
    if not seats:
        raise InvalidInput("a roster needs at least one owner; found none")
    keys = [seat.public_key for seat in seats if seat.public_key]
    for what, names in (("owner", [seat.owner for seat in seats]), ("public key", keys)):
        for name, count in Counter[object](names).items():
            if count > 1:
                raise InvalidInput(f"a roster names each {what} once; found {name!r:.60} twice")
    first = seats[0].terms
    for seat in seats:
        if seat.terms.task != first.task or seat.terms.dimension != first.dimension:
            raise InvalidInput(
                f"a roster is about one task; {seat.owner} agreed to {seat.terms.task!r:.60}, "
                f"dimension {seat.terms.dimension}"
            )


def _item(reply: Any, record: str, name: str) -> Any:
    """Return an item of a reply, or None: a node may send anything."""
    if reply.has_error() or not reply.has_content():
        return None
    items = reply.content.get(record)
    return items.get(name) if isinstance(items, ConfigRecord) else None
