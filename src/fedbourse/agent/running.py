"""All deals of a device at once, a thread each; new tasks are joined where the owner wants that."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from fedbourse.agent.following import backoff_s
from fedbourse.errors import FedbourseError, TooManyRequests, Unreachable
from fedbourse.wire import bounds
from fedbourse.wire.keys import key_id

if TYPE_CHECKING:
    from fedbourse.agent.agent import Agent
    from fedbourse.agent.deals import Deal, Market
    from fedbourse.agent.following import Following, Until

_LOOK_S = 5.0
"""How often an agent that joins by itself looks for new tasks."""


class _Follower(threading.Thread):
    """Follows one deal beside others, and comes back to a market that was away."""

    def __init__(self, agent: Agent, deal: Deal, until: Until) -> None:
        super().__init__(daemon=True)
        self._agent, self._deal, self._until = agent, deal, until
        self._following: Following | None = None
        self.failed: Exception | None = None
        self.start()

    @property
    def waits(self) -> bool:
        """Whether nothing is done but wait for the market."""
        return self._following is None or self._following.waits

    def run(self) -> None:
        """Follow the deal."""
        agent, failures = self._agent, 0
        while not agent.stop.is_set():
            try:
                agent.follow(self._deal, self._until, on_start=self._take)
                return
            except Unreachable as error:
                failures += 1
                self._tell("unreachable", error)
                agent.stop.wait(backoff_s(0.25, failures))
            except Exception as error:  # also what an application's own data source raises
                self._tell("failed", error)
                self.failed = error
                return

    def _take(self, following: Following) -> None:
        self._following = following
        self._agent.tell({"event": "following", "task": self._deal.task})

    def _tell(self, kind: str, error: Exception) -> None:
        self._agent.tell({"event": kind, "task": self._deal.task, "sentence": str(error)})


class _Scout(threading.Thread):
    """Joins a market's open tasks as they come; one that is slow keeps no other market waiting."""

    def __init__(self, agent: Agent, market: Market, joined: threading.Event) -> None:
        super().__init__(daemon=True)
        self._agent, self._market, self._joined = agent, market, joined
        self._refused: dict[str, None] = {}
        """The names of tasks that were not joined, the oldest first."""
        self._failures, self._full = 0, False
        self.waits = False
        """Whether nothing is done but look at the list: if ``stop`` is set, it stays so."""
        self.failed: Exception | None = None
        self.start()

    def run(self) -> None:
        """Look until the agent is stopped."""
        try:
            while not self._agent.stop.is_set():
                self._look()
        except Exception as error:  # also what an application's own data source raises
            self._agent.tell({"event": "failed", "sentence": str(error)})
            self.failed = error

    def _look(self) -> None:
        stop = self._agent.stop
        self.waits = True
        try:
            open_tasks = self._agent.tasks("open", server=self._market.server)
            failure, self._failures = None, 0
        except FedbourseError as error:  # a list that cannot be read hides no other market
            open_tasks, failure = [], error
            self._failures += 1
        if stop.is_set():
            return
        self.waits = False
        if failure is not None:
            self._agent.tell({"event": "unreachable", "sentence": str(failure)})
        for task in self._new([task["task"] for task in open_tasks])[: bounds.NEW_TASKS_MAX]:
            if stop.is_set() or self._is_full():
                break
            self._join(task)
        stop.wait(max(_LOOK_S, backoff_s(0.25, self._failures)))

    def _new(self, tasks: list[str]) -> list[str]:
        known = {deal.name for deal in self._agent.deals.deals()} | self._refused.keys()
        return [task for task in tasks if self._deal_name(task) not in known]

    def _is_full(self) -> bool:
        """Say whether as many deals are followed as can be, and tell it once."""
        full = len(self._agent.deals.live(self._market)) >= bounds.DEALS_MAX
        if full and not self._full:
            sentence = (
                f"{bounds.DEALS_MAX} deals with {self._market.server} have not ended, as many as a "
                "device follows at once; other tasks are joined when one has"
            )
            self._agent.tell({"event": "full", "sentence": sentence})
        self._full = full
        return full

    def _join(self, task: str) -> None:
        agent = self._agent
        try:
            agent.join(task, server=self._market.server)
            self._joined.set()
            agent.tell({"event": "joined", "task": task})
        except (Unreachable, TooManyRequests) as error:
            agent.tell({"event": "unreachable", "task": task, "sentence": str(error)})
        except FedbourseError as error:  # one task that does not fit hides no other
            self._refused[self._deal_name(task)] = None
            if len(self._refused) > bounds.REFUSED_TASKS_MAX:
                del self._refused[next(iter(self._refused))]
            agent.tell({"event": "not-joined", "task": task, "sentence": str(error)})

    def _deal_name(self, task: str) -> str:
        return f"{key_id(self._market.key)}/{task}"


class Running:
    """Follows an agent's deals until they are where they should be."""

    def __init__(self, agent: Agent) -> None:
        """Start with none."""
        self._agent = agent

    def until(self, goal: Until, *, join_open: bool, only: Deal | None) -> list[Deal]:
        """Follow all deals, or ``only`` one; see ``Agent.run``."""
        agent, fresh = self._agent, threading.Event()
        names: set[str] = set()
        threads: list[_Follower | _Scout] = []
        if join_open:
            threads += [_Scout(agent, market, fresh) for market in agent.deals.markets()]
        failed: list[Exception] = []
        fresh.set()
        while True:
            if fresh.is_set():
                fresh.clear()
                for deal in agent.deals.deals():
                    wanted = only is None or deal.name == only.name
                    if wanted and deal.state in ("joined", "signed") and deal.name not in names:
                        threads.append(_Follower(agent, deal, goal))
                        names.add(deal.name)
            # Those that are done are let go, with all that they held.
            over = [thread for thread in threads if not thread.is_alive()]
            failed += [thread.failed for thread in over if thread.failed is not None]
            threads = [thread for thread in threads if thread not in over]
            if agent.stop.is_set() or not threads:
                break
            if join_open:
                fresh.wait(0.2)
            else:
                threads[0].join(0.2)
        for thread in threads:
            # One that only waits for the market does nothing any more once ``stop`` is set.
            while thread.is_alive() and not (agent.stop.is_set() and thread.waits):
                thread.join(0.05)
            if thread.failed is not None:
                failed.append(thread.failed)
        if failed:
            raise failed[0]
        return [deal for deal in agent.deals.deals() if deal.name in names]
