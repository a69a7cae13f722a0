"""The event log of a task: append-only, each event holding the hash of the one before.

Values and plans lie outside it. The log holds the root of a Merkle tree over salted hashes of them,
so that an owner can prove its own line, an auditor every line, and a line can be erased without
breaking the log.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fedbourse.wire.canonical import digest

_BLOCK = 1 << 12
"""How many leaves are hashed together; a power of two."""

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True)
class Event:
    """One thing that happened to a task. Its body is public."""

    task: str
    sequence: int
    """Counts from 0, without gaps."""
    kind: str
    at_ms: int
    body: Mapping[str, Any]
    previous: str
    """The hash of the event before; the card's hash for the first."""
    hash: str


def next_event(
    task: str, kind: str, body: Mapping[str, Any], *, at_ms: int, after: tuple[int, str]
) -> Event:
    """Return the event that follows the one with this sequence number and hash."""
    sequence, previous = after[0] + 1, after[1]
    return Event(
        task=task,
        sequence=sequence,
        kind=kind,
        at_ms=at_ms,
        body=dict(body),
        previous=previous,
        hash=_event_hash(
            task=task, sequence=sequence, kind=kind, at_ms=at_ms, body=body, previous=previous
        ),
    )


def is_intact(event: Event) -> bool:
    """Say whether an event has the hash that its content gives."""
    return event.hash == _event_hash(**{k: v for k, v in asdict(event).items() if k != "hash"})


def _event_hash(**parts: Any) -> str:
    return digest({**parts, "body": dict(parts["body"])})


def leaf(salt: str, document: object) -> str:
    """Return the salted hash of a document that stays outside the log."""
    return digest({"salt": salt, "document": document})


def root(leaves: Iterable[str]) -> str:
    """Return the root of the Merkle tree over these leaves, in this order."""
    tree = Root()
    tree.add(leaves)
    return tree.hex()


class Root:
    """The root over leaves that come little by little: it holds a few thousand hashes at most."""

    def __init__(self) -> None:
        """Start without leaves."""
        self._last: list[bytes] = []
        """The hashes of leaves that fill no block yet."""
        self._blocks = 0
        self._full: list[bytes] = []
        """The tops of full trees of blocks, the largest first."""

    @property
    def leaves(self) -> int:
        """How many leaves came so far."""
        return self._blocks * _BLOCK + len(self._last)

    def add(self, leaves: Iterable[str]) -> None:
        """Add leaves after those that came before."""
        for item in leaves:
            self._last.append(_hash(b"\x00", bytes.fromhex(item)))
            if len(self._last) == _BLOCK:
                self._close_block()

    def hex(self) -> str:
        """Return the root over all leaves so far."""
        tops = [*self._full, _top(self._last)] if self._last or not self._full else self._full[:]
        while len(tops) > 1:
            right = tops.pop()
            tops[-1] = _hash(b"\x01", tops[-1] + right)
        return tops[0].hex()

    def _close_block(self) -> None:
        top, before = _top(self._last), self._blocks
        while before & 1:  # two trees of one size become one
            top, before = _hash(b"\x01", self._full.pop() + top), before >> 1
        self._full.append(top)
        self._blocks += 1
        self._last = []


def proof(leaves: Sequence[str], position: int) -> tuple[str, ...]:
    """Return the neighbours that lead from one leaf to the root; an empty one stands for none."""
    level = [_hash(b"\x00", bytes.fromhex(item)) for item in leaves]
    path = []
    while len(level) > 1:
        neighbour = position ^ 1
        path.append(level[neighbour].hex() if neighbour < len(level) else "")
        level, position = _above(level), position // 2
    return tuple(path)


def proves(path: Sequence[str], *, leaf: str, position: int, leaves: int, root: str) -> bool:
    """Say whether the path leads from the leaf at this position, of so many leaves, to the root."""
    if not 0 <= position < leaves:
        return False
    here = _hash(b"\x00", bytes.fromhex(leaf))
    for neighbour in path:
        if leaves == 1 or bool(neighbour) == (position ^ 1 >= leaves):
            return False  # a tree of this size has another shape
        if neighbour:
            other = bytes.fromhex(neighbour)
            here = _hash(b"\x01", other + here if position & 1 else here + other)
        position, leaves = position // 2, (leaves + 1) // 2
    return leaves == 1 and here.hex() == root


def _top(level: list[bytes]) -> bytes:
    """Return the top of the tree over hashes of leaves."""
    while len(level) > 1:
        level = _above(level)
    return level[0] if level else _hash(b"\x02", b"")


def _above(level: list[bytes]) -> list[bytes]:
    """Hash neighbours in pairs; one without a neighbour moves up as it is."""
    pairs = zip(level[::2], level[1::2], strict=False)
    above = [_hash(b"\x01", left + right) for left, right in pairs]
    return above + level[-1:] if len(level) % 2 else above


def _hash(kind: bytes, content: bytes) -> bytes:
    # The kind keeps a leaf from passing for a pair of hashes.
    return hashlib.sha256(kind + content).digest()
