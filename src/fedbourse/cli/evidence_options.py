"""The options of ``fedbourse task card`` for evidence, and the reference file beside a card."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - the parser of arguments reads it, and so does a doctest
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from fedbourse.cli.files import check_writable, read_bytes, write_bytes
from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.errors import CannotWrite, InvalidInput
from fedbourse.files.columns import is_number
from fedbourse.units import whole_number

if TYPE_CHECKING:
    from fedbourse.learning.data import Source
    from fedbourse.learning.records import Records
    from fedbourse.tasks.card import TaskCard
    from fedbourse.tasks.evidence import EvidenceSpec

EVIDENCE = Group.create_ordered("Evidence")
_SUFFIX = ".reference"


@Parameter(name="*", group=EVIDENCE)
@dataclass(frozen=True, kw_only=True)
class EvidenceOptions:
    """Whether and how updates are compared with records of the buyer's own.

    Parameters
    ----------
    evidence
        Compare updates with records of your own, and hold pay meanwhile: a FILE with the columns
        of --data, or how many of the records of --data to set aside. They are written beside the
        card, for you alone; the card has their hash.
    evidence_population
        like-reference: owners whose records are like yours. any-class-mixture: owners of any
        mixture of the classes, such as one class alone; shuffled labels then may pass.
    alpha
        How likely, at most, a device without data ever shows data.
    beta
        How likely, at most, a device with data like yours is ever dismissed.
    k0
        The part of your records' gradient that an honest device's must reach, 0 to 1.
    hold_rounds
        For how many rounds pay is held at most; by default until the end.
    evidence_source
        records: the market has your records while the task runs. gradients: you keep them until the
        end, and your machine sends their gradient for each round (task send-gradients).
    reveal_to_owners
        Let owners who trained see these records once the task has ended; auditors always may.
    """

    evidence: Annotated[str | None, Parameter(name="--evidence")] = None
    evidence_population: Literal["like-reference", "any-class-mixture"] = "like-reference"
    alpha: float = 0.01
    beta: float = 0.01
    k0: float = 0.5
    hold_rounds: Whole | None = None
    evidence_source: Literal["records", "gradients"] = "records"
    reveal_to_owners: Annotated[bool, Parameter(negative=())] = False

    def spec(self, content: bytes, records: Records) -> EvidenceSpec:
        """Return what the card says of evidence with this reference file."""
        from fedbourse.tasks.evidence import EvidenceSpec, reference_hash

        hold = self.hold_rounds
        return EvidenceSpec(
            reference=reference_hash(content),
            records=len(records),
            alpha=self.alpha,
            beta=self.beta,
            k0=self.k0,
            population=self.evidence_population,
            hold_rounds=None if hold is None else whole_number("hold_rounds", hold, at_least=1),
            reveal_to_owners=self.reveal_to_owners,
            source=self.evidence_source,
        )


NO_EVIDENCE = EvidenceOptions()


def reference_part(evidence: str, source: Source) -> Records:
    """Return the records that updates are compared with: of a file, or some of the source's own."""
    import numpy as np

    from fedbourse.learning.sources.files import records_like
    from fedbourse.tasks.evidence import REFERENCE_RECORDS_MIN

    if is_file(evidence):
        return records_like(source, evidence)
    count = whole_number("--evidence", float(evidence), at_least=REFERENCE_RECORDS_MIN)
    if count > len(source.buyer) // 2:
        raise InvalidInput(
            f"--evidence must leave half of your own {len(source.buyer)} records for the "
            f"validation: at most {len(source.buyer) // 2}; found {count}"
        )
    order = np.random.default_rng([0, 3]).permutation(len(source.buyer))
    return source.buyer.take(np.sort(order[:count]))


def is_file(evidence: str) -> bool:
    """Say whether --evidence names a file; otherwise it is a number of records."""
    return not is_number(evidence)


def reference_beside(card: Path) -> Path:
    """Return where the reference file of a card's file is.

    >>> str(reference_beside(Path("tasks/card.json")))
    'tasks/card.reference'
    """
    return card.with_suffix(_SUFFIX)


def write_reference(card: Path, content: bytes) -> Path:
    """Write a reference file beside a card that is about to be written, for its owner alone."""
    file = reference_beside(card)
    check_writable(card)
    if file.exists() or file == card:
        raise CannotWrite(
            f"{file} exists already, and a task may need it; give another --out, or remove it"
        )
    write_bytes(file, content, private=True)
    return file


def read_reference(card: TaskCard, file: Path) -> bytes:
    """Return the reference file of a card with evidence, if it is the one that it commits to."""
    from fedbourse.tasks.evidence import REFERENCE_BYTES_MAX, reference_records

    assert card.evidence is not None
    content = read_bytes(file, at_most=REFERENCE_BYTES_MAX)
    reference_records(content, card, card.evidence)
    return content
