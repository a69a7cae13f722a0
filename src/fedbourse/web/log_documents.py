"""What the service answers about where logs end."""

from __future__ import annotations

from typing import Any, Literal

from fedbourse.web.bodies import HASH, KEY, MS, SIGNATURE, TASK, Body, example

_HEAD: dict[str, Any] = {"kind": "log head", "of": TASK, "length": 6, "hash": HASH, "at_ms": MS}


class LogHead(Body):
    """Where a log ended at a moment."""

    model_config = example(**_HEAD)
    kind: Literal["log head"]
    of: str
    """A task's id; or market, for the list of all tasks that were opened."""
    length: int
    """How many events, or opened tasks."""
    hash: str
    """The hash of the last of them; empty where there is none."""
    at_ms: int


class SignedHead(Body):
    """A head with the market's signature of it, to be kept."""

    model_config = example(head=_HEAD, public_key=KEY, signature=SIGNATURE)
    head: LogHead
    public_key: str
    signature: str
