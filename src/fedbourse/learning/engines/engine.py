"""What training sees of the devices: it sends round requests, and takes the updates that come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedbourse.errors import Refused
    from fedbourse.game.columns import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Updates:
    """The updates of one round that came in time, noise included."""

    owners: IntArray
    """Who sent them, in rising order."""
    vectors: FloatArray
    """One row an update."""
    refused: Mapping[int, Refused] = field(default_factory=dict)
    """Whose device refused, and why."""


class Engine(Protocol):
    """A group of devices."""

    @property
    def scales(self) -> FloatArray:
        """Each owner's noise, a coordinate, as its terms say."""

    def ask(self, number: int, parameters: FloatArray) -> Updates:
        """Send every device the model of round ``number``, and return their updates."""
