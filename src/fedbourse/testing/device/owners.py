"""An owner's device for tests: data that may become forbidden, and runs that end by themselves."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.device import Agent, DeviceSettings, Ledger
from fedbourse.errors import FedbourseError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedbourse.testing.device.malicious_market import MaliciousMarket

SECONDS = 20.0
TURNS = frozenset({"refused", "unpaid", "unreachable", "moved", "declined", "ended"})
"""What a device tells when something is not as it should be, or is over."""


@dataclass
class Data:
    """Forty records, which nobody may read once they are forbidden."""

    forbidden: bool = False
    reads: int = 0

    def __call__(self, card: object) -> tuple[Any, Any]:
        """Return the records."""
        assert not self.forbidden, "the data was touched"
        self.reads += 1
        column = np.linspace(-1.0, 1.0, 40)[:, None]
        return column, (column[:, 0] > 0).astype(float)


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    ledger: Ledger
    events: list[dict[str, Any]] = field(default_factory=list)
    error: FedbourseError | None = None
    in_time: bool = True

    @property
    def reasons(self) -> list[str]:
        """Why the device refused, over its whole life."""
        return [refusal.reason for refusal in self.ledger.refusals]

    @property
    def sentences(self) -> str:
        """All that the device told in words."""
        sentences = [str(event.get("sentence", "")) for event in self.events]
        return "\n".join([*sentences, str(self.error or "")])

    @property
    def spent(self) -> Fraction:
        """Return all that is gone, which is never above what was sold."""
        for entry in self.ledger.entries:
            assert entry.spent <= Fraction(entry.budget)
        return self.ledger.spent


def joined(folder: Path, market: MaliciousMarket, **settings: Any) -> Path:
    """Make a device that has joined the market's task."""
    options = {"value": 1.0, "lifetime_cap": 5.0, **settings}
    with Agent.create(folder, DeviceSettings(**options), data=Data()) as agent:
        agent.enrol(market.url, "fbe_token")
        agent.join(agent.tasks("open")[0]["task"])
    return folder


def followed(
    folder: Path,
    data: Data,
    *,
    until: Callable[[dict[str, Any]], bool] = lambda event: event["event"] in TURNS,
    **options: Any,
) -> Outcome:
    """Follow the device's last deal until an event, an error, or the end."""
    events: list[dict[str, Any]] = []
    late = threading.Event()

    def hear(event: dict[str, Any]) -> None:
        events.append(event)
        if until(event):
            agent.stop.set()

    def give_up() -> None:
        late.set()
        agent.stop.set()

    error = None
    with Agent(folder, data=data, on_event=hear, **options) as agent:
        timer = threading.Timer(SECONDS, give_up)
        timer.start()
        try:
            agent.follow(agent.deals.deals()[-1])
        except FedbourseError as raised:
            error = raised
        finally:
            timer.cancel()
        return Outcome(agent.ledger(), events, error, not late.is_set())


def delivered(folder: Path, rounds: int) -> Outcome:
    """Sign, and send updates in some rounds of a market that keeps its word."""

    def enough(event: dict[str, Any]) -> bool:
        if rounds == 0:
            return bool(event["event"] == "signed")
        return bool(event["event"] == "delivered" and event["delivered"] == rounds)

    outcome = followed(folder, Data(), until=enough)
    assert outcome.events[-1]["event"] in ("signed", "delivered"), outcome
    return outcome
