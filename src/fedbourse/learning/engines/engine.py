"""What training sees of the devices: it asks, and takes the answers that come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedbourse.errors import Refused
    from fedbourse.game.columns import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers to one round that came in time, noise included."""

    owners: IntArray
    """Who answered, in rising order."""
    vectors: FloatArray
    """One row an answer."""
    refused: Mapping[int, Refused] = field(default_factory=dict)
    """Whose device would not answer, and why."""


class Engine(Protocol):
    """Devices that can be asked together."""

    @property
    def scales(self) -> FloatArray:
        """Each owner's noise, a coordinate, as its terms say."""

    def ask(self, number: int, parameters: FloatArray) -> Answers:
        """Ask every device about the model of round ``number``, and return who answered what."""
