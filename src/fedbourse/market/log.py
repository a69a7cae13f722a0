"""The event log of a task: append-only, each event holding the hash of the one before.

Values and plans lie outside it. The log holds the root of a Merkle tree over salted hashes of them,
so that an owner can prove its own line, an auditor every line, and a line can be erased without
breaking the log.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fedbourse.wire.canonical import digest

if TYPE_CHECKING:
    from collections.abc import Mapping


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
