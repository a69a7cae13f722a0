"""Devices on a Flower federation: stock SuperNodes, or virtual ones on a Ray cluster.

The buyer's ServerApp holds this engine. It asks the nodes of a roster over Flower's Grid, and takes
the answers that come in time. A node is known by its registered public key where the roster has
one; a name that a node gives itself counts only for an owner without a key.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.errors import InvalidInput, MissingExtra, Refused, Unreachable
from fedbourse.learning.answer_check import checked_answer
from fedbourse.learning.engines.engine import Answers
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

WHO, QUESTION, ANSWER, REFUSAL = "who", "question", "answer", "refusal"
"""The names of the records that messages carry."""

_FIRST_PAUSE_S = 0.01  # grows until poll_s: virtual nodes answer at once, real ones in seconds
_LOOK_S = 1.0  # between two looks at which nodes there are


@dataclass(frozen=True)
class Seat:
    """One owner of the roster: what it sold, and the key of its node where that is known."""

    owner: str
    terms: Terms
    public_key: bytes | None = None


class FlowerEngine:
    """Asks the nodes of a roster over a Grid."""

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
        have to come. A node that let a round pass is asked, but no longer waited for, until it
        answers. A round with fewer than ``at_least`` answers is no round: it can be asked again.
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

    def ask(self, number: int, parameters: FloatArray) -> Answers:
        """Ask every node that is there, and return what came in time and passed the checks."""
        body = np.ascontiguousarray(parameters).astype("<f8").tobytes()
        start = self._clock()
        end = start + self._round_s
        if self._join_end is None:
            self._join_end = start + self._join_s
            end += self._join_s
        asked: dict[str, int] = {}
        answers: dict[int, FloatArray] = {}
        refused: dict[int, Refused] = {}
        self._next_look, pause_s = start, _FIRST_PAUSE_S
        while True:
            self._look_around()
            for seat in sorted(set(self._nodes) - set(asked.values())):
                self._put(asked, seat, number, body)
            open_ = [m for m, s in asked.items() if s not in answers and s not in refused]
            for message, reply in self._replies([*open_, *self._late, *self._greetings]):
                if message in self._greetings:
                    self._met(self._greetings.pop(message), reply)
                elif message in self._late:
                    self._silent.discard(self._nodes.get(self._late.pop(message), 0))
                else:
                    self._take(asked[message], reply, answers, refused)
            if self._clock() >= end or self._all_in(asked, answers, refused):
                break
            self._sleep(pause_s)
            pause_s = min(self._poll_s, 1.5 * pause_s)
        for message, seat in asked.items():
            if seat not in answers and seat not in refused:
                self._late[message] = seat
                self._silent.add(self._nodes.get(seat, 0))
        return self._collected(number, answers, refused)

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

    def _put(self, asked: dict[str, int], seat: int, number: int, body: bytes) -> None:
        terms = self._seats[seat].terms
        question = ConfigRecord(
            {"task": terms.task, "terms": terms.digest, "round": int(number), "model": body}
        )
        node = self._nodes[seat]
        message = self._push(RecordDict({QUESTION: question}), node, "train", group=str(number))
        if message:
            asked[message] = seat
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
        known = set(messages)
        found = [(reply.metadata.reply_to_message_id, reply) for reply in pulled]
        return [(message, reply) for message, reply in found if message in known]

    def _take(
        self,
        seat: int,
        reply: Any,
        answers: dict[int, FloatArray],
        refused: dict[int, Refused],
    ) -> None:
        """Sort a reply in: an answer that passes, or why there is none."""
        self._silent.discard(self._nodes.get(seat, 0))
        if reply.has_error():
            refused[seat] = Refused("no-answer", f"{reply.error.reason}"[:400])
        elif (reason := _item(reply, REFUSAL, "reason")) is not None:
            sentence = _item(reply, REFUSAL, "sentence")
            refused[seat] = Refused(f"{reason}"[:60], f"{sentence}"[:400])
        else:
            try:
                vector = _item(reply, ANSWER, "vector")
                answers[seat] = checked_answer(self._seats[seat].terms, vector)
            except InvalidInput as error:
                refused[seat] = Refused("bad-answer", str(error))

    def _all_in(
        self, asked: dict[str, int], answers: dict[int, FloatArray], refused: dict[int, Refused]
    ) -> bool:
        """Say whether there is nobody left to wait for."""
        assert self._join_end is not None
        joining = self._clock() < self._join_end and len(self._nodes) < len(self._seats)
        waited = {*asked.values(), *self._nodes}
        waited -= {s for s, node in self._nodes.items() if node in self._silent}
        return not joining and all(s in answers or s in refused for s in waited)

    def _collected(
        self, number: int, answers: dict[int, FloatArray], refused: dict[int, Refused]
    ) -> Answers:
        if len(answers) < self._at_least:
            why = "; ".join(f"{self._seats[i].owner}: {refused[i]}" for i in sorted(refused)[:3])
            raise Unreachable(
                f"round {number} has {len(answers)} answers of {len(self._seats)} owners, and "
                f"needs {self._at_least}{f' ({why})' if why else ''}; it can be asked again"
            )
        owners = sorted(answers)
        return Answers(
            np.array(owners, dtype=np.int64), np.stack([answers[i] for i in owners]), refused
        )


def _check(seats: Sequence[Seat]) -> None:
    if not seats:
        raise InvalidInput("a roster needs at least one owner; found none")
    keys = [seat.public_key for seat in seats if seat.public_key]
    for what, found in (("owner", [seat.owner for seat in seats]), ("public key", keys)):
        if len(set(found)) != len(found):
            twice = next(each for each in found if found.count(each) > 1)  # type: ignore[arg-type]
            raise InvalidInput(f"a roster names each {what} once; found {twice!r:.60} twice")
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
    found = reply.content.get(record)
    return found.get(name) if isinstance(found, ConfigRecord) else None
