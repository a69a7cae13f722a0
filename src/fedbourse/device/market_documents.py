"""The shape of a market's documents, checked before anything reads them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fedbourse.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

_TASK_ID = re.compile("[0-9a-f]{24}")
_ITEMS: dict[str, dict[str, Any]] = {
    "enrolment": {"market_public_key": str, "device": str, "owner": str, "signature": str},
    "task": {
        "task": str,
        "state": str,
        "buyer": str,
        "card": str,
        "events": int,
        "tick": int | None,
        "offer": str | None,
        "total_budget": object,
        "reward_micro": object,
        "interested": int | None,
        "last_hash": str,
        "state_signature": str,
    },
    "card": {"card": dict, "digest": str},
    "record of this owner": {
        "replies": list,
        "exit": dict | None,
        "allocation": dict | None,
        "terms": dict | None,
        "receipt": dict | None,
        "sequence": int,
        "signature": str,
    },
    "event": {"kind": str, "body": dict},
    "allocation of this owner": {
        "state": str,
        "delivered": int,
        "earned_micro": int,
        "held_micro": int,
    },
    "terms": {"terms": dict, "digest": str, "market_signature": str},
    "receipt": {"receipt": dict, "market_signature": str},
}
"""The items of each document, and their types."""


def checked_document(what: str, document: object) -> dict[str, Any]:
    """Return a document if it is an object with the items of its kind."""
    if not isinstance(document, dict):
        raise Refused("document", f"the market's {what} is not an object; found {document!r:.40}")
    for name, kind in _ITEMS[what].items():
        if name not in document:
            raise Refused("document", f"the market's {what} has no {name}")
        item = document[name]
        if not isinstance(item, kind) or (isinstance(item, bool) and kind is not object):
            raise Refused("document", f"the market's {what} has {name} {item!r:.40}")
    return document


def task_document(document: object) -> dict[str, Any]:
    """Return a task's document; its id goes into addresses and into the device's file."""
    task = checked_document("task", document)
    if not _TASK_ID.fullmatch(task["task"]):
        raise Refused("document", f"the market's task has the id {task['task']!r:.40}")
    return task


def difference(document: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return in words what differs first."""
    for name in expected:
        if name not in document or repr(document[name]) != repr(expected[name]):
            item = repr(document[name])[:40] if name in document else "nothing"
            return f"{name} {item}, and should say {expected[name]!r:.40}"
    extra = next(name for name in document if name not in expected)
    return f"{extra!r:.40}, which does not belong there"


def whole_count(name: str, count: object) -> int:
    """Return a count if it is a whole number of at least 0."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise Refused("changed-terms", f"{name} must be a whole number; found {count!r:.40}")
    return count
