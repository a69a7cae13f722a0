"""The records that a device computes its updates from: at most m of its owner's, chosen in secret.

Which ones they are depends on the set of the owner's records, never on their order or their number.
Each record has a key, a keyed hash of its content and of how many equal ones came before it, and
the m least keys are chosen. So with any one record exchanged, added or removed

- at most one key goes and at most one comes, as no other record's key depends on it; and
- of the m least keys at most one is exchanged: between two sets that differ by one element, at
  most one element crosses the m-th place.

The sum of the gradients therefore moves by at most 2L, and m stays the divisor: 2L/m, as charged.
A record that does not fit the card has no key at all: it is left out, which the same argument
covers.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.learning.partition import Federation
from fedbourse.learning.records import Records

if TYPE_CHECKING:
    from fedbourse.game.columns import BoolArray, FloatArray, IntArray

_FILLED_MAX = 2**24
"""Numbers up to which empty rows fill the records up to m: 128 MB."""


@dataclass(frozen=True, eq=False)
class DeviceRecords:
    """One owner's rows; those that hold no record contribute nothing, and m is the divisor."""

    records: Records
    fits: BoolArray
    """Which rows hold a record."""
    samples: int
    """m."""

    @classmethod
    def choose(
        cls, features: FloatArray, labels: FloatArray, *, classes: int, samples: int, secret: bytes
    ) -> DeviceRecords:
        """Choose at most ``samples`` of the records that fit, by a secret.

        ``features`` end with the constant 1. There are m rows in any case, unless they would not
        fit into memory, so that a round takes as long with few records as with many.
        """
        rows = _by_key(features, labels, secret)[:samples]
        width = features.shape[1]
        size = samples if samples * width <= _FILLED_MAX else max(1, len(rows))
        filled, numbers = np.zeros((size, width)), np.zeros(size)
        filled[:, -1] = 1.0
        filled[: len(rows)], numbers[: len(rows)] = features[rows], labels[rows]
        return cls(Records(filled, numbers, classes), np.arange(size) < len(rows), samples)

    @classmethod
    def of(cls, records: Records) -> DeviceRecords:
        """Take all of these records, and m to be their number."""
        return cls(records, np.ones(len(records), dtype=bool), len(records))

    def __len__(self) -> int:
        return int(np.count_nonzero(self.fits))

    @cached_property
    def federation(self) -> Federation:
        """The same as a federation of this one owner."""
        records = self.records
        return Federation(
            records, np.array([0, len(records)]), np.array([self.samples]), fits=self.fits
        )


def _by_key(features: FloatArray, labels: FloatArray, secret: bytes) -> IntArray:
    """Return the rows in the order of their keys, which nobody can foretell without the secret."""
    # A BLAKE2 key is at most 64 bytes; a secret may be longer.
    key = hashlib.blake2b(secret, digest_size=32).digest()
    contents = np.column_stack([features, labels]).astype("<f8")
    content_bytes, width = contents.tobytes(), 8 * contents.shape[1]
    equal_before: Counter[bytes] = Counter()
    keys = []
    for start in range(0, len(content_bytes), width):
        record = hashlib.blake2b(content_bytes[start : start + width], key=key, digest_size=16)
        name = record.digest()
        record.update(equal_before[name].to_bytes(8))
        equal_before[name] += 1
        keys.append(record.digest())
    halves = np.frombuffer(b"".join(keys), dtype=">u8").reshape(-1, 2)
    return np.lexsort((halves[:, 1], halves[:, 0]))
