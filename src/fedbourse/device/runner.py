"""All deals of a device at once, a thread each; new tasks are joined where the owner wants that."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from fedbourse.device.deal_worker import backoff_s
from fedbourse.errors import FedbourseError, ProtocolError, TooManyRequests, Unreachable
from fedbourse.protocol import bounds
from fedbourse.protocol.keys import key_id

if TYPE_CHECKING:
    from fedbourse.device.agent import Agent
    from fedbourse.device.deal import Deal, KnownMarket
    from fedbourse.device.deal_worker import DealWorker, Until

_LOOK_S = 5.0
"""How often an agent that joins by itself looks for new tasks."""


class _Thread(threading.Thread):
    """A thread of an agent, which keeps the error that ended it."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(daemon=True)
        self._agent = agent
        self.error: Exception | None = None

    def _tell(self, kind: str, sentence: object = None, *, task: str | None = None) -> None:
        facts = {"event": kind, "task": task, "sentence": sentence and str(sentence)}
        self._agent.tell({name: fact for name, fact in facts.items() if fact is not None})

    def _fail(self, error: Exception, *, task: str | None = None) -> None:
        self._tell("failed", error, task=task)
        self.error = error


class _WorkerThread(_Thread):
    """Follows one deal, and reconnects to a market that was away."""

    def __init__(self, agent: Agent, deal: Deal, until: Until) -> None:
        super().__init__(agent)
        self._deal, self._until = deal, until
        self._worker: DealWorker | None = None
        self.start()

    @property
    def waits(self) -> bool:
        """Whether it does nothing but wait for the market: if ``stop`` is set, it stays so."""
        return self._worker is None or self._worker.waits

    def run(self) -> None:
        """Follow the deal."""
        agent, task, failures = self._agent, self._deal.task, 0
        while not agent.stop.is_set():
            try:
                agent.follow(self._deal, self._until, on_start=self._take)
                return
            except (ProtocolError, Unreachable) as error:
                failures += 1
                self._tell("unreachable", error, task=task)
                agent.stop.wait(backoff_s(0.25, failures))
            except Exception as error:  # also what an application's own data source raises
                self._fail(error, task=task)
                return

    def _take(self, worker: DealWorker) -> None:
        self._worker = worker
        self._tell("following", task=self._deal.task)


class _JoinThread(_Thread):
    """Joins a market's open tasks as they come; a slow market keeps no other one waiting."""

    def __init__(self, agent: Agent, market: KnownMarket, joined: threading.Event) -> None:
        super().__init__(agent)
        self._market, self._joined = market, joined
        self._refused: dict[str, None] = {}
        """The names of tasks that were not joined, the oldest first."""
        self._failures, self._full, self.waits = 0, False, False
        self.start()

    def run(self) -> None:
        """Look for tasks until the agent is stopped."""
        try:
            while not self._agent.stop.is_set():
                self._look()
        except Exception as error:  # also what an application's own data source raises
            self._fail(error)

    def _look(self) -> None:
        stop = self._agent.stop
        self.waits = True
        try:
            tasks = self._agent.tasks("open", server=self._market.server)
            failure, self._failures = None, 0
        except FedbourseError as error:  # a list that cannot be read hides no other market
            tasks, failure = [], error
            self._failures += 1
        if stop.is_set():
            return
        self.waits = False
        if failure is not None:
            self._tell("unreachable", failure)
        old = {deal.name for deal in self._agent.deals.deals()} | self._refused.keys()
        new = [task["task"] for task in tasks if self._deal_name(task["task"]) not in old]
        for task in new[: bounds.NEW_TASKS_MAX]:
            if stop.is_set() or self._is_full():
                break
            self._join(task)
        stop.wait(max(_LOOK_S, backoff_s(0.25, self._failures)))

    def _is_full(self) -> bool:
        """Say whether as many deals are followed as can be, and tell the owner once."""
        was_full = self._full
        self._full = len(self._agent.deals.live(self._market)) >= bounds.DEALS_MAX
        if self._full and not was_full:
            self._tell(
                "full",
                f"{bounds.DEALS_MAX} deals with {self._market.server} have not ended, as many as a "
                "device follows at once; other tasks are joined when one has",
            )
        return self._full

    def _join(self, task: str) -> None:
        try:
            self._agent.join(task, server=self._market.server)
            self._joined.set()
            self._tell("joined", task=task)
        except (ProtocolError, Unreachable, TooManyRequests) as error:
            self._tell("unreachable", error, task=task)
        except FedbourseError as error:  # one task that does not fit hides no other
            self._refused[self._deal_name(task)] = None
            if len(self._refused) > bounds.REFUSED_TASKS_MAX:
                del self._refused[next(iter(self._refused))]
            self._tell("not-joined", error, task=task)

    def _deal_name(self, task: str) -> str:
        return f"{key_id(self._market.key)}/{task}"


def run_deals(agent: Agent, goal: Until, *, join_open: bool, only: Deal | None) -> list[Deal]:
    """Follow all deals, or ``only`` one, until they reach the goal; see ``Agent.run``."""
    joined = threading.Event()
    joined.set()
    names: set[str] = set()
    threads: list[_WorkerThread | _JoinThread] = []
    errors: list[Exception] = []
    if join_open:
        threads += [_JoinThread(agent, market, joined) for market in agent.deals.markets()]
    while True:
        if joined.is_set():
            joined.clear()
            for deal in agent.deals.deals():
                wanted = only is None or deal.name == only.name
                if wanted and deal.is_live and deal.name not in names:
                    threads.append(_WorkerThread(agent, deal, goal))
                    names.add(deal.name)
        # Threads that are done are let go, with all that they held.
        for thread in [each for each in threads if not each.is_alive()]:
            threads.remove(thread)
            errors += [thread.error] if thread.error else []
        if agent.stop.is_set() or not threads:
            break
        if join_open:
            joined.wait(0.2)
        else:
            threads[0].join(0.2)
    for thread in threads:
        # One that only waits for the market does nothing any more once ``stop`` is set.
        while thread.is_alive() and not thread.waits:
            thread.join(0.05)
        errors += [thread.error] if thread.error else []
    if errors:
        raise errors[0]
    return [deal for deal in agent.deals.deals() if deal.name in names]
