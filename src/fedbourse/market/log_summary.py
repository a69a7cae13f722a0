"""What a task's public log says in numbers: for every screen that tells how a task went."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fedbourse.market.log import Event
    from fedbourse.market.ports import Unit

_AT_ONCE = 500


@dataclass(frozen=True)
class Settlement:
    """Where price discovery ended."""

    tick: int
    """The lowest announced total whose replies sum to at most it."""
    converged: bool
    """Whether the bracket around P was narrow enough; else the task settled by rule."""
    regret_bound: float
    """The most that an owner could gain by another budget while the others keep theirs, credits."""
    total_budget: float
    """rho that is sold, by all owners together."""
    owners: int
    """How many have terms."""

    @property
    def words(self) -> str:
        """Return how the task was settled, in words."""
        how = "converged" if self.converged else "by rule: the total had not converged"
        return (
            f"at tick {self.tick}, {how}; no owner could gain more than {self.regret_bound:g} "
            "credits by another budget while the others keep theirs"
        )


def settlement_in(body: Mapping[str, Any]) -> Settlement:
    """Return the settlement that an event of the log tells of."""
    return Settlement(
        tick=body["tick"],
        converged=body["converged"],
        regret_bound=body["regret_bound"],
        total_budget=body["total_budget"],
        owners=body["lines"],
    )


@dataclass(frozen=True)
class LogSummary:
    """A task's log in numbers."""

    fund: Mapping[str, str] | None = None
    """The fund as it was pinned when the task opened: its account, and where it pays out."""
    reserved_micro: int = 0
    """What opening the task took from the buyer."""
    released_micro: int = 0
    """What went back when the reward was announced."""
    missed: int = 0
    """Owners who are out because they did not reply to a tick."""
    struck_out: int = 0
    """Owners who are out because they declined their terms, or did not sign them in time."""
    out: int = 0
    """All who are out of the task, those who left it by themselves among them."""
    restarts: int = 0
    """How often the price was discovered again without owners who were struck out."""
    offers: tuple[Mapping[str, Any], ...] = ()
    """What was announced, tick by tick."""
    settlement: Settlement | None = None
    """The settlement that stands; None while the price is being discovered."""
    signed: int | None = None
    """How many owners train; None before training."""
    ended_ms: int | None = None
    reason: str = ""
    """Why the task was cancelled."""
    refunded_micro: int = 0
    fund_micro: int = 0
    shared_micro: int = 0

    @property
    def left(self) -> int:
        """Owners who left by themselves, as far as the log has counted them."""
        return max(0, self.out - self.missed - self.struck_out)

    @property
    def out_counts(self) -> dict[str, int]:
        """Return how many owners are out of the task, by the reason."""
        return {"left": self.left, "missed": self.missed, "struck_out": self.struck_out}


_OUT_WORDS = {
    "left": "left",
    "missed": "missed a tick",
    "struck_out": "declined or did not sign",
}


def out_words(counts: Mapping[str, int]) -> str:
    """Return who is out of a task, in words.

    >>> out_words({"left": 1, "missed": 0, "struck_out": 2})
    '1 left, 2 declined or did not sign'
    """
    parts = [f"{counts[name]} {words}" for name, words in _OUT_WORDS.items() if counts[name]]
    return ", ".join(parts) or "nobody"


def summary(events: Iterable[tuple[str, int, Mapping[str, Any]]]) -> LogSummary:
    """Return what events say, each given by its kind, its moment and its body."""
    seen = LogSummary()
    for kind, at_ms, body in events:
        if kind in _CHANGES:
            seen = replace(seen, **_CHANGES[kind](seen, body))
        if kind in ("completed", "cancelled"):
            seen = replace(seen, ended_ms=at_ms)
    return seen


def _closed_tick(seen: LogSummary, body: Mapping[str, Any]) -> dict[str, Any]:
    if "closed_tick" not in body:  # the first tick after a restart
        return {}
    return {"missed": seen.missed + body["missed"], "out": body["out"]}


def _ticked(seen: LogSummary, body: Mapping[str, Any]) -> dict[str, Any]:
    return _closed_tick(seen, body) | {"offers": (*seen.offers, body["offer"])}


def _restart(seen: LogSummary, body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "restarts": seen.restarts + 1,
        "struck_out": seen.struck_out + body["struck_out"],
        "out": seen.out + body["struck_out"],
        "settlement": None,
    }


def _end(_seen: LogSummary, body: Mapping[str, Any]) -> dict[str, Any]:
    amounts = {name: body[name] for name in ("refunded_micro", "fund_micro", "shared_micro")}
    return amounts | {"reason": body.get("reason", "")}


_CHANGES: dict[str, Callable[[LogSummary, Mapping[str, Any]], dict[str, Any]]] = {
    "opened": lambda _, body: {"reserved_micro": body["reserved_micro"], "fund": body["fund"]},
    "announced": lambda _, body: {
        "released_micro": body["released_micro"],
        "offers": (body["offer"],),
    },
    "ticked": _ticked,
    "last-tick": _closed_tick,
    "settled": lambda _, body: {"settlement": settlement_in(body)},
    "restarted": _restart,
    "training": lambda _, body: {"signed": body["signed"]},
    "completed": _end,
    "cancelled": _end,
}
"""What each kind of event changes."""


def summary_of(unit: Unit, task_id: str) -> LogSummary:
    """Return what a task's log says by now, rounds left aside."""
    events = _without_rounds(unit, task_id)
    return summary((event.kind, event.at_ms, event.body) for event in events)


def _without_rounds(unit: Unit, task_id: str) -> Iterator[Event]:
    """Yield the events before training, and the last one."""
    after = -1
    while page := unit.events(task_id, after=after, limit=_AT_ONCE):
        for event in page:
            yield event
            if event.kind == "training":
                last = unit.task(task_id).last_sequence
                if last > event.sequence:
                    yield from unit.events(task_id, after=last - 1, limit=1)
                return
        after = page[-1].sequence
