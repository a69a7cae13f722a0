"""``fedbourse task send-gradients``: a buyer that keeps its reference records takes part."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path  # noqa: TC003 - read at run time, by the parser of arguments
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from fedbourse.cli.evidence_options import read_reference
from fedbourse.cli.output import PEOPLE, Output
from fedbourse.cli.server_options import NO_OPTIONS, ServerOptions, TaskId, task_id
from fedbourse.errors import Conflict, InvalidInput, ProtocolError, TooManyRequests, Unreachable

if TYPE_CHECKING:
    from fedbourse.learning.models import Model
    from fedbourse.learning.reference_gradients import ReferenceRecords
    from fedbourse.protocol.connection import Connection
    from fedbourse.tasks.card import TaskCard

Note = Callable[[dict[str, Any]], None]
_ENDED = ("completed", "cancelled")
_WAIT_S = 25.0
_PAUSE_MAX_S = 30.0
_FAILURES_MAX = 100
"""About fifty minutes without the market; by then a round has long been missed."""


def send_gradients(
    task: TaskId,
    file: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    server: ServerOptions = NO_OPTIONS,
    output: Output = PEOPLE,
) -> None:
    """Send the gradient of your reference records for every round, and reveal them at the end.

    For a card with evidence whose source is gradients. Leave it running from before training until
    the task has ended: each round waits for it, round_s at most. If it is ended in between, start
    it again: it goes on where the task is. Progress is on standard error.

    For example:

        fedbourse task send-gradients latest card.reference

    Parameters
    ----------
    file
        What task card --evidence wrote beside the card.
    """
    from fedbourse.tasks.card import TaskCard

    with server.connect(patience=5.0) as connection:
        path = f"/v1/tasks/{task_id(connection, task)}"
        card = TaskCard.of(connection.get(f"{path}/card")["card"])
        if card.evidence is None or card.evidence.source != "gradients":
            raise InvalidInput(
                "the card has no evidence whose source is gradients, so that there is nothing to "
                "send; fedbourse task reference uploads the records of other cards with evidence"
            )
        content = read_reference(card, file)
        sender = _Sender(connection, path, card, content, output.event_notes(_in_words))
        ended = sender.until_the_end()
        connection.put_bytes(f"{path}/reference", content)
    document = {name: ended[name] for name in ("task", "state", "round", "rounds")}
    output.show(
        document | {"sent": sender.sent, "revealed": True},
        lambda shown: (
            f"task {shown['task']} is {shown['state']}; gradients of {shown['sent']} rounds were "
            "sent, and the reference records are revealed"
        ),
    )


class _Sender:
    """Sends what each round waits for; what was sent, the market alone remembers."""

    def __init__(
        self, connection: Connection, path: str, card: TaskCard, content: bytes, note: Note
    ) -> None:
        from fedbourse.tasks.evidence import reference_records

        assert card.evidence is not None
        records = reference_records(content, card, card.evidence)
        rule = card.evidence.rule(card.rounds)
        self._connection, self._path, self._card, self._note = connection, path, card, note
        self._reference: ReferenceRecords = rule.reference_records(records)
        self._model: Model = card.build()
        self._content = content
        self.sent = 0

    def until_the_end(self) -> dict[str, Any]:
        """Follow the task until it has ended, and return it."""
        events, failures = 0, 0
        while True:
            try:
                task: dict[str, Any] = self._connection.get(
                    self._path, {"seen": events, "wait": _WAIT_S}, wait_s=_WAIT_S
                )
                if task["state"] in _ENDED:
                    return task
                if task["reference_ends_ms"] is not None:
                    task = self._send(int(task["round"]))
                events, failures = task["events"], 0
            except Conflict as error:  # the round opened without it, or the task ended
                self._note({"kind": "moved", "sentence": str(error)})
                events = 0
                time.sleep(1.0)
            except (Unreachable, TooManyRequests) as error:
                failures += 1
                if failures == _FAILURES_MAX:
                    raise
                self._note({"kind": "unreachable", "sentence": str(error)})
                time.sleep(min(_PAUSE_MAX_S, 0.25 * 2.0 ** min(failures, 30)))

    def _send(self, number: int) -> dict[str, Any]:
        """Send the gradient at a round's model, and return the task with the open round."""
        import numpy as np

        from fedbourse.tasks.evidence import gradient_file

        round = f"{self._path}/rounds/{number}"
        parameters = np.frombuffer(self._connection.get_bytes(f"{round}/model"), dtype=np.uint8)
        if len(parameters) != 8 * self._card.dimension:
            raise ProtocolError(
                f"a model of this card has {8 * self._card.dimension} bytes; the market sends "
                f"{len(parameters)}"
            )
        model = parameters.view("<f8").astype(np.float64)
        gradient = self._reference.at(self._model, model, clip=self._card.clip)
        sent = gradient_file(gradient, reference=self._content, round=number)
        task: dict[str, Any] = self._connection.put_bytes(f"{round}/reference", sent)
        self.sent += 1
        self._note({"kind": "sent", "round": number, "rounds": self._card.rounds})
        return task


def _in_words(event: dict[str, Any]) -> str:
    if event["kind"] == "sent":
        return f"round {event['round'] + 1} of {event['rounds']}: the gradient is sent"
    return str(event["sentence"])
