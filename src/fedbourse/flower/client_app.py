"""The ClientApp of a Flower federation: opens its owner's device, and lets it deliver or refuse.

The device's folder is named by the owner of the SuperNode, with ``--node-config
'fedbourse-device="FOLDER"'``; in a simulation by the environment of whoever runs it. Neither the
run's configuration nor a message can name it.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbourse.errors import InvalidInput, MissingExtra, Refused
from fedbourse.flower.device import DEVICES, FlowerDevice
from fedbourse.learning.engines.flower import REFUSAL, ROUND_REQUEST, UPDATE, WHO

try:
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.clientapp import ClientApp
except ImportError:
    raise MissingExtra(
        "the Flower app needs flwr, which is not installed: pip install 'fedbourse[flower]'"
    ) from None

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.app import Context

DEVICE = "fedbourse-device"
"""The key of a SuperNode's configuration that names the device's folder."""
_ABOUT_THE_TASK = (
    "beyond-rounds",
    "changed-terms",
    "closed",
    "no-model",
    "no-request",
    "other-model",
    "over-budget",
    "past-round",
)
"""Reasons whose sentence says nothing but what the server knows; others may tell of the device."""
_ELSEWHERE = "the device refuses; its own log says why"

_log = logging.getLogger("flwr.fedbourse")

app = ClientApp()


@app.query()
def who(message: Message, context: Context) -> Message:
    """Say under which name the owner agreed to a task; with a known key nobody needs it."""

    def owner() -> dict[str, Any]:
        request = message.content.get(WHO)
        task = request.get("task") if isinstance(request, ConfigRecord) else None
        return {"owner": _device(context).owner(str(task))}

    return _reply(message, WHO, owner)


@app.train()
def update(message: Message, context: Context) -> Message:
    """Deliver the update of a round, within what the owner agreed to."""

    def vector() -> dict[str, Any]:
        request = message.content.get(ROUND_REQUEST)
        if not isinstance(request, ConfigRecord):
            raise Refused("no-request", "the message holds no round request")
        # Only these four: a scale, budget or clip that a server sends along is never looked at.
        task, terms, number, model = (request.get(k) for k in ("task", "terms", "round", "model"))
        if not (isinstance(task, str) and isinstance(terms, str) and isinstance(number, int)):
            raise Refused("no-request", "a round request names a task, terms by digest and a round")
        if not isinstance(model, bytes):
            raise Refused("no-request", "the model of a round request must be bytes")
        device = _device(context)
        return {"vector": device.update(task=task, terms=terms, round=number, model=model)}

    return _reply(message, UPDATE, vector)


def _device(context: Context) -> FlowerDevice:
    folder, simulated = context.node_config.get(DEVICE), os.environ.get(DEVICES)
    if isinstance(folder, str) and folder:
        return FlowerDevice(Path(folder))
    if simulated and "partition-id" in context.node_config:
        return FlowerDevice(Path(simulated, f"owner-{context.node_config['partition-id']}"))
    raise Refused("no-device", f"this node was started without --node-config '{DEVICE}=\"FOLDER\"'")


def _reply(message: Message, record: str, make: Callable[[], dict[str, Any]]) -> Message:
    """Reply with what was made, or with why not; what went wrong with data stays on the device."""
    try:
        content = RecordDict({record: ConfigRecord(make())})
    except Refused as refusal:
        sentence = str(refusal) if refusal.reason in _ABOUT_THE_TASK else _ELSEWHERE
        _log.warning("fedbourse refuses, %s: %s", refusal.reason, refusal)
        content = _refusal(refusal.reason, sentence)
    except Exception as error:
        if type(error) is InvalidInput:  # about the round request alone
            _log.warning("fedbourse refuses: %s", error)
            content = _refusal("invalid-request", str(error))
        else:
            # Flower would send the exception to the server, and it may quote a record.
            _log.error("fedbourse failed: %s", error, exc_info=error)
            content = _refusal("failed", "the device failed; its own log says why")
    return Message(content, reply_to=message)


def _refusal(reason: str, sentence: str) -> RecordDict:
    return RecordDict({REFUSAL: ConfigRecord({"reason": reason, "sentence": sentence})})
