"""Evidence recomputed: every sum and every dismissal, from the reference, the models, the updates.

The reference must be what the card commits to, and what the buyer sent of it while the task ran
must be what the log vouches for and what the records give. Each update must be what its owner was
given a receipt for, and each model what the log says. Sums may differ in their last digits:
machines add up differently.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.encoding.canonical import digest
from fedbourse.learning.update_check import update_numbers
from fedbourse.market.audit.records import Differs, TaskRecords, Unseen, same
from fedbourse.market.audit.reference_gradients import SentGradients
from fedbourse.market.evidence import (
    CardReference,
    Comparison,
    RoundUpdates,
    evidence_in,
    root_of,
    spec_of,
)
from fedbourse.market.records import DeviceEvidence
from fedbourse.protocol.messages import update_message

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from fedbourse.game.columns import FloatArray
    from fedbourse.learning.evidence import Evidence
    from fedbourse.market.audit.records import Document
    from fedbourse.market.evidence import Directions

_SLACK = 1e-6


def check_evidence(records: TaskRecords) -> str:
    """Every score, dismissal and decision follows from the reference and the updates."""
    if records.card.evidence is None:
        raise Unseen("the card has no evidence")
    if records.evidence is None:
        raise Unseen("evidence is recomputed by auditors, once the task has ended")
    replay = _Replay(records, records.evidence)
    for body in replay.rounds:
        replay.close(body)
    replay.compare_states()
    return (
        f"{len(replay.rounds)} rounds of updates beside {records.card.evidence.records} reference "
        f"records lead to the same scores, and {len(replay.lost)} dismissals"
    )


class _Replay:
    """The market's judgements, made again round by round."""

    def __init__(self, records: TaskRecords, evidence: Document) -> None:
        self._records, self._rounds_kept = records, evidence["rounds"]
        self._comparison = Comparison(records.card)
        self._reference = _revealed(records, evidence)
        self._sent = SentGradients(records, self._reference)
        self._spec = spec_of(records.card)
        self.rounds = [event["body"] for event in records.events if event["kind"] == "round"]
        self._scales = {
            each["owner"]: self._comparison.scale(_budget(each)) for each in records.signed
        }
        self._stored: dict[int, dict[str, DeviceEvidence]] = {}
        for each in evidence["findings"]:
            stored = DeviceEvidence(
                records.task["task"],
                each["block"],
                each["owner"],
                json.dumps(each["sums"]),
                each["dismissed_round"],
            )
            self._stored.setdefault(each["block"], {})[each["owner"]] = stored
        self._now: dict[str, Evidence] = {}
        self._fallen: dict[str, int] = {}
        self._last = RoundUpdates([], lambda: iter(()))
        self._void = False
        self.lost: set[str] = set()

    def close(self, body: Document) -> None:
        """Judge a round as the market did when it closed."""
        number, card = body["round"], self._records.card
        model, updates = self._round(number)
        if self._spec.block_of(number, rounds=card.rounds) != self._block_before(number):
            self._now, self._fallen, self._void = {}, {}, False
        fallen = set()
        directions = self._directions(number, model)
        self._void = self._void or directions is None
        if directions is not None and not self._void:
            scales = self._scales
            added = self._comparison.added(self._now, directions, updates, self._last, scales)
            for owner, evidence in added:
                self._now[owner] = evidence
                if self._comparison.rule.verdict(evidence) == "dismissed":
                    self._fallen[owner] = number
                    fallen.add(owner)
            self._void = 2 * len(self._fallen) > len(scales) - len(self.lost)
        logged = body["evidence"]
        same(f"whether evidence is void in round {number}", logged["void"], self._void)
        dismissed = 0 if self._void else len(self._fallen)
        same(f"the dismissals by round {number}", logged["dismissed"], dismissed)
        self._last = updates if self._void else _without(updates, fallen)
        if self._spec.ends_block(number, rounds=card.rounds):
            self._end_block(logged)

    def _directions(self, number: int, model: FloatArray) -> Directions | None:
        """Return what a round's updates are compared with; None where the buyer sent nothing."""
        if self._spec.source == "gradients":
            return self._sent.directions(self._rounds_kept[number], model)
        return None if self._reference is None else self._reference.directions(model)

    def _block_before(self, number: int) -> int | None:
        if number == 0:
            return None
        return self._spec.block_of(number - 1, rounds=self._records.card.rounds)

    def _end_block(self, logged: Document) -> None:
        rule = self._comparison.rule
        here = [name for name in self._scales if name not in self.lost]
        stands = not self._void and rule.stands([self._now.get(n, rule.begin()) for n in here])
        same(f"whether evidence of block {logged['block']} stands", logged["stands"], stands)
        stored = self._stored.get(logged["block"], {})
        same(f"the root of block {logged['block']}", logged["root"], root_of(stored.values()))
        same("whose updates were compared", sorted(stored), sorted(self._now))
        for owner, evidence in self._now.items():
            _alike(f"the sums of {owner}", evidence_in(stored[owner]).document, evidence.document)
            same(
                f"the dismissal of {owner}",
                stored[owner].dismissed_round,
                self._fallen.get(owner),
            )
        self.lost |= set(self._fallen) if stands else set()

    def compare_states(self) -> None:
        """Who is dismissed in the end is who the decisions say."""
        if self._records.task["state"] != "completed":
            return  # a cancelled task decides on its last block before that is full
        for each in self._records.signed:
            state = "dismissed" if each["owner"] in self.lost else "signed"
            same(f"the state of {each['owner']}", each["state"], state)

    def _round(self, number: int) -> tuple[FloatArray, RoundUpdates]:
        """Return a round's model and updates, if they are what the log vouches for.

        Updates are read as they are needed, one after the other, and checked whenever they are.
        """
        records, document = self._records, self._rounds_kept[number]
        model = base64.b64decode(document["model"])
        if number:
            hash = hashlib.sha256(model).hexdigest()
            same(f"the model of round {number}", self.rounds[number - 1]["model_hash"], hash)
        else:
            start = records.card.build().start(seed=records.card.start_seed)
            same("the first model", model, start.astype("<f8").tobytes())
        hashes = {each["owner"]: each["hash"] for each in records.round_updates[number]}
        same(f"who sent updates in round {number}", sorted(document["updates"]), sorted(hashes))

        def read() -> Iterator[tuple[str, FloatArray]]:
            for owner in sorted(hashes):
                body = base64.b64decode(document["updates"][owner])
                message = update_message(
                    task=records.task["task"],
                    round=number,
                    owner=owner,
                    vector_hash=hashlib.sha256(body).hexdigest(),
                    request=document["request"],
                )
                same(f"the update of {owner} in round {number}", hashes[owner], digest(message))
                yield owner, update_numbers(body, dimension=records.card.dimension)

        return np.frombuffer(model, dtype="<f8"), RoundUpdates(sorted(hashes), read)


def _revealed(records: TaskRecords, evidence: Document) -> CardReference | None:
    """Return the reference; None where the buyer kept it, and no round was compared with it."""
    if evidence["reference"] is not None:
        return CardReference.of(records.card, evidence["reference"])
    if any(e["kind"] == "reference" and e["body"]["reference"] for e in records.events):
        raise Differs(
            "the buyer has not revealed the reference records whose gradients it sent, so that no "
            "score can be recomputed"
        )
    return None


def _without(updates: RoundUpdates, owners: Collection[str]) -> RoundUpdates:
    def read() -> Iterator[tuple[str, FloatArray]]:
        return ((owner, vector) for owner, vector in updates.read() if owner not in owners)

    return RoundUpdates([each for each in updates.owners if each not in owners], read)


def _budget(allocation: Document) -> float:
    if allocation["budget"] is None:
        raise Unseen(f"the budget of {allocation['owner']} was erased, and with it its noise")
    return float(allocation["budget"])


def _alike(what: str, recorded: Any, recomputed: Any) -> None:
    """Refuse documents whose numbers differ by more than machines do."""
    if isinstance(recorded, Mapping) and isinstance(recomputed, Mapping):
        same(f"{what}: the items", sorted(recorded), sorted(recomputed))
        for name, item in recorded.items():
            _alike(f"{what}, {name}", item, recomputed[name])
    elif isinstance(recorded, Sequence) and not isinstance(recorded, str):
        same(f"{what}: how many", len(recorded), len(recomputed))
        for one, other in zip(recorded, recomputed, strict=True):
            _alike(what, one, other)
    elif isinstance(recorded, float) or isinstance(recomputed, float):
        if not math.isclose(recorded, recomputed, rel_tol=_SLACK, abs_tol=_SLACK):
            raise Differs(f"{what}: the records say {recorded}, recomputed is {recomputed}")
    else:
        same(what, recorded, recomputed)
