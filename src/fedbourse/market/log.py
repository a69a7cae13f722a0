"""The event log of a task: append-only, each event holding the hash of the one before.

Values and plans lie outside it. The log holds the root of a Merkle tree over salted hashes of them,
so that an owner can prove its own allocation, an auditor all of them, and any can be erased without
breaking the log.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - read by web.shapes
from dataclasses import dataclass, replace
from typing import Any

from fedbourse.encoding.canonical import digest


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
    event = Event(task, sequence, kind, at_ms, dict(body), previous, hash="")
    return replace(event, hash=_hash_of(event))


def is_intact(event: Event) -> bool:
    """Say whether an event has the hash that its content gives."""
    return event.hash == _hash_of(event)


def _hash_of(event: Event) -> str:
    items = {**vars(event), "body": dict(event.body)}
    del items["hash"]
    return digest(items)


def leaf(salt: str, document: object) -> str:
    """Return the salted hash of a document that stays outside the log."""
    return digest({"salt": salt, "document": document})
