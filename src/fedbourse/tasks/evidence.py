"""A card's evidence: whether and how updates are compared with the buyer's own records.

The card commits to reference records by a salted hash. Each round the market compares updates with
the gradient of those records at the same model (``learning.evidence``). It has the records, or only
their gradient of each round, which the buyer sends before the round opens. Pay is held meanwhile: a
device whose updates do not agree is asked no more, and its held pay goes to the market's fund.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedbourse.errors import InvalidData, InvalidInput
from fedbourse.learning.evidence import EvidenceRule, Population
from fedbourse.learning.records import Records
from fedbourse.learning.reference_gradients import Reference, reference_bytes_max
from fedbourse.registry import Choice, Registry
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from fedbourse.tasks.card import TaskCard
    from fedbourse.tasks.spec import TrainingSpec

POPULATIONS: Registry[None] = Registry(
    "population",
    Choice(
        "like-reference",
        "owners whose records are like the buyer's",
        "shuffled labels are dismissed, and so are honest owners whose records differ much",
        None,
    ),
    Choice(
        "any-class-mixture",
        "owners of any mixture of the classes",
        "honest owners of few classes stay, and shuffled labels may pass",
        None,
    ),
)
EvidenceSource = Literal["records", "gradients"]
SOURCES: Registry[None] = Registry(
    "source",
    Choice(
        "records",
        "the market has the records, and computes their gradients",
        "nothing to do while the task runs; the market's operator has the records",
        None,
    ),
    Choice(
        "gradients",
        "the buyer keeps the records until the end, and sends their gradient for each round",
        "the buyer's machine takes part in training; a round that it misses voids evidence",
        None,
    ),
)
REFERENCE_RECORDS_MIN = 10
SALT_BYTES = 32
REFERENCE_BYTES_MAX = 8_000_000
"""What a market takes of a reference file: 100,000 records of 9 features."""


@dataclass(frozen=True)
class EvidenceSpec:
    """What a card says of evidence."""

    reference: str
    """SHA-256 of the reference file: a salt, and the buyer's records (``reference_file``)."""
    records: int
    """How many reference records there are."""
    alpha: float = 0.01
    """How likely, at most, a device without data ever shows data."""
    beta: float = 0.01
    """How likely, at most, a device with data like the reference's is ever dismissed."""
    k0: float = 0.5
    """The part of the reference's gradient that an honest device's must reach."""
    population: Population = "like-reference"
    """Whose updates must pass: owners like the reference, or of any mixture of its classes."""
    hold_rounds: int | None = None
    """For how many rounds pay is held at most: then it is released, and evidence begins afresh.
    Null for all rounds: pay is held until the end."""
    reveal_to_owners: bool = False
    """Whether owners may see the reference records after the end; auditors always may."""
    source: EvidenceSource = "records"
    """What the market compares updates with: records that it has, or gradients that it is sent."""

    def __post_init__(self) -> None:
        if not isinstance(self.reference, str) or not _is_sha256(self.reference):
            raise InvalidInput(
                f"evidence's reference must be a SHA-256 in hexadecimal; found "
                f"{self.reference!r:.80}"
            )
        whole_number("records", self.records, at_least=REFERENCE_RECORDS_MIN)
        POPULATIONS.choose(self.population)
        SOURCES.choose(self.source)
        if self.hold_rounds is not None:
            whole_number("hold_rounds", self.hold_rounds, at_least=1)
        if not isinstance(self.reveal_to_owners, bool):
            raise InvalidInput(
                f"reveal_to_owners must be true or false; found {self.reveal_to_owners!r:.60}"
            )
        self.rule(1)  # checks alpha, beta and k0

    @property
    def document(self) -> dict[str, Any]:
        """Return it as a plain document."""
        return asdict(self)

    def block_rounds(self, rounds: int) -> int:
        """Return how many rounds pay is held for, in a task of so many rounds."""
        return min(self.hold_rounds or rounds, rounds)

    def block_of(self, round: int, *, rounds: int) -> int:
        """Return the block of rounds that a round belongs to, counting from 0."""
        return round // self.block_rounds(rounds)

    def ends_block(self, round: int, *, rounds: int) -> bool:
        """Say whether held pay is decided on when this round closes."""
        return (round + 1) % self.block_rounds(rounds) == 0 or round + 1 == rounds

    def rule(self, rounds: int) -> EvidenceRule:
        """Return the rule for one block of rounds: all blocks together share alpha and beta."""
        blocks = -(-rounds // self.block_rounds(rounds))
        return EvidenceRule(
            alpha=number("alpha", self.alpha, above=0, at_most=0.5) / blocks,
            beta=number("beta", self.beta, above=0, at_most=0.5) / blocks,
            k0=self.k0,
            rounds=self.block_rounds(rounds),
            population=self.population,
        )


def reference_file(records: Records, *, salt: bytes | None = None) -> bytes:
    """Return the bytes that a card commits to: a salt, then features and label of each record.

    Without the salt, who knows most of the records could try out the rest.
    """
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    table = np.column_stack([records.features, records.labels])
    if SALT_BYTES + 8 * table.size > REFERENCE_BYTES_MAX:
        most = (REFERENCE_BYTES_MAX - SALT_BYTES) // (8 * table.shape[1])
        raise InvalidData(
            f"reference records of {table.shape[1] - 1} features may be at most {most}, which a "
            f"market takes; found {len(table)}"
        )
    return salt + table.astype("<f8").tobytes()


def reference_hash(body: bytes) -> str:
    """Return the hash that a card has for a reference file."""
    return hashlib.sha256(body).hexdigest()


def reference_records(body: bytes, spec: TrainingSpec, evidence: EvidenceSpec) -> Records:
    """Read a reference file; refuse one that is not what the card commits to."""
    if reference_hash(body) != evidence.reference:
        raise InvalidData(
            f"the reference file has the SHA-256 {reference_hash(body)}; the card commits to "
            f"{evidence.reference}"
        )
    expected = SALT_BYTES + 8 * evidence.records * (spec.features + 1)
    if len(body) != expected:
        raise InvalidData(
            f"a reference file of {evidence.records} records of {spec.features} features has "
            f"{expected} bytes; found {len(body)}"
        )
    table = np.frombuffer(body, dtype="<f8", offset=SALT_BYTES).reshape(evidence.records, -1)
    return Records(table[:, :-1], table[:, -1], spec.classes)


def check_gradient_size(card: TaskCard, evidence: EvidenceSpec) -> None:
    """Refuse a card whose reference gradients are larger than a market takes."""
    size = SALT_BYTES + reference_bytes_max(card.dimension, _mixed_classes(card, evidence))
    if evidence.source == "gradients" and size > REFERENCE_BYTES_MAX:
        raise InvalidInput(
            f"a reference gradient of this card may have {size} bytes, and a market takes at most "
            f"{REFERENCE_BYTES_MAX}; use source records, or a smaller model"
        )


def gradient_file(gradient: Reference, *, reference: bytes, round: int) -> bytes:
    """Return what a buyer sends for a round: a salt, then the numbers.

    The log has its hash, from which somebody who knows most of the records could find the rest if
    there were no salt. The salt follows from that of the reference file, so that the same gradient
    is sent as the same bytes again.
    """
    salt = hmac.digest(reference[:SALT_BYTES], f"round {round}".encode(), "sha256")
    return salt + gradient.content


def reference_gradient(content: bytes, card: TaskCard, evidence: EvidenceSpec) -> Reference:
    """Read a round's reference gradient; refuse one that no records can have."""
    classes = _mixed_classes(card, evidence)
    numbers = content[SALT_BYTES:]
    return Reference.of(numbers, dimension=card.dimension, clip=card.clip, classes=classes)


def _mixed_classes(card: TaskCard, evidence: EvidenceSpec) -> int | None:
    return card.classes if evidence.population == "any-class-mixture" else None


def _is_sha256(text: str) -> bool:
    return len(text) == 64 and set(text) <= set("0123456789abcdef")
