"""The reference gradients that a buyer sent while a task ran, beside the records that it revealed.

The log has the hash of each, in an event that the round's request follows: no update of the round
can be older. The revealed records must give the same gradient at the same model.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.encoding.canonical import digest
from fedbourse.market.audit.records import Differs, TaskRecords, same
from fedbourse.market.evidence import Directions, spec_of
from fedbourse.protocol.messages import round_request_message
from fedbourse.tasks.evidence import reference_gradient

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray
    from fedbourse.learning.evidence import Reference
    from fedbourse.market.audit.records import Document
    from fedbourse.market.evidence import CardReference

SLACK = 1e-6
"""How far a gradient that was sent may lie from the recomputed one, in units of the clip, as
machines add up differently: far below what moves a score, far above rounding."""


class SentGradients:
    """What a buyer sent, checked round by round."""

    def __init__(self, records: TaskRecords, reference: CardReference | None) -> None:
        self._records, self._reference = records, reference
        self._events = {e["body"]["round"]: e for e in records.events if e["kind"] == "reference"}
        self._first: FloatArray | None = None

    def directions(self, kept: Document, model: FloatArray) -> Directions | None:
        """Return what a round's updates are compared with; None where nothing was sent."""
        number, card = kept["round"], self._records.card
        if number not in self._events:
            raise Differs(f"the log does not say what opened round {number}")
        event = self._events[number]
        self._check_request(event, kept, model)
        content = None if kept["reference"] is None else base64.b64decode(kept["reference"])
        same(
            f"the hash of the reference gradient of round {number}",
            event["body"]["reference"],
            None if content is None else hashlib.sha256(content).hexdigest(),
        )
        if content is None or self._reference is None:
            return None
        sent = reference_gradient(content, card, spec_of(card))
        self._check_follows(number, sent, self._reference.gradient(model))
        if self._first is None:
            self._first = sent.mean
        return Directions(sent, self._first)

    def _check_request(self, event: Document, kept: Document, model: FloatArray) -> None:
        """Refuse a round request, which updates refer to, that does not follow the event."""
        card, number = self._records.card, kept["round"]
        message = round_request_message(
            task=self._records.task["task"],
            card=card.digest,
            round=number,
            model_hash=hashlib.sha256(model.astype("<f8").tobytes()).hexdigest(),
            deadline_ms=event["body"]["deadline_ms"],
            previous=event["hash"],
        )
        same(f"the request of round {number}", kept["request"], digest(message))

    def _check_follows(self, number: int, sent: Reference, revealed: Reference) -> None:
        """Refuse a gradient that the revealed records do not have at the round's model."""
        ours, theirs = revealed.numbers, sent.numbers
        same(f"the length of the reference gradient of round {number}", len(theirs), len(ours))
        apart = float(np.abs(theirs - ours).max()) / self._records.card.clip
        if not apart <= SLACK:
            raise Differs(
                f"the reference gradient that the buyer sent for round {number} lies "
                f"{apart:.3g} of the clip from that of the records that it revealed; machines "
                f"differ by {SLACK:g} at most"
            )
