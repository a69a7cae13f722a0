"""What a task's public log says in numbers: for every screen that tells how a task went."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fedbourse.market.log import Event
    from fedbourse.market.ports import Transaction

_AT_ONCE = 50
"""Few logs are longer before training, and thousands of rounds may follow."""


@dataclass(frozen=True)
class Settlement:
    """Where price discovery ended."""

    tick: int
    """The lowest announced total whose replies sum to at most it."""
    converged: bool
    """Whether P had converged; otherwise the task settled by rule."""
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
        owners=body["allocations"],
    )


@dataclass(frozen=True)
class OutCounts:
    """How many owners are out of a task, by the reason."""

    left: int
    """By their own wish."""
    missed: int
    """They did not reply to a tick."""
    struck_out: int
    """They declined their terms, or did not sign them in time."""


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
        return asdict(OutCounts(self.left, self.missed, self.struck_out))


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
    so_far = LogSummary()
    for kind, at_ms, body in events:
        if kind in _CHANGES:
            so_far = replace(so_far, **_CHANGES[kind](so_far, body))
        if kind in ("completed", "cancelled"):
            so_far = replace(so_far, ended_ms=at_ms)
    return so_far


def _closed_tick(so_far: LogSummary, body: Mapping[str, Any]) -> dict[str, Any]:
    if "closed_tick" not in body:  # the first tick after a restart
        return {}
    return {"missed": so_far.missed + body["missed"], "out": body["out"]}


def _ticked(so_far: LogSummary, body: Mapping[str, Any]) -> dict[str, Any]:
    return _closed_tick(so_far, body) | {"offers": (*so_far.offers, body["offer"])}


def _restart(so_far: LogSummary, body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "restarts": so_far.restarts + 1,
        "struck_out": so_far.struck_out + body["struck_out"],
        "out": so_far.out + body["struck_out"],
        "settlement": None,
    }


def _end(_so_far: LogSummary, body: Mapping[str, Any]) -> dict[str, Any]:
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


def summary_of(tx: Transaction, task_id: str) -> LogSummary:
    """Return what a task's log says by now, rounds left aside."""
    events = _without_rounds(tx, task_id)
    return summary((event.kind, event.at_ms, event.body) for event in events)


def _without_rounds(tx: Transaction, task_id: str) -> Iterator[Event]:
    """Yield the events before training, and the last one."""
    after = -1
    while page := tx.events(task_id, after=after, limit=_AT_ONCE):
        for event in page:
            yield event
            if event.kind == "training":
                last = tx.task(task_id).last_sequence
                if last > event.sequence:
                    yield from tx.events(task_id, after=last - 1, limit=1)
                return
        after = page[-1].sequence
