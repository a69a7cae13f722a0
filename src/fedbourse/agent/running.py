"""All deals of a device at once, a thread each; new tasks are joined where the owner wants that."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from fedbourse.agent.following import backoff_s
from fedbourse.errors import FedbourseError, TooManyRequests, Unreachable
from fedbourse.wire.keys import key_id

if TYPE_CHECKING:
    from fedbourse.agent.agent import Agent
    from fedbourse.agent.deals import Deal
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


class Running:
    """Follows an agent's deals until they are where they should be."""

    def __init__(self, agent: Agent) -> None:
        """Start with none."""
        self._agent = agent
        self._unwanted: set[str] = set()

    def until(self, goal: Until, *, join_open: bool, only: Deal | None) -> list[Deal]:
        """Follow all deals, or ``only`` one; see ``Agent.run``."""
        agent = self._agent
        running: dict[str, _Follower] = {}
        while True:
            if join_open:
                self._join_open()
            for deal in agent.deals.deals():
                wanted = only is None or deal.name == only.name
                if wanted and deal.state in ("joined", "signed") and deal.name not in running:
                    running[deal.name] = _Follower(agent, deal, goal)
            alive = [thread for thread in running.values() if thread.is_alive()]
            if agent.stop.is_set() or (not alive and not join_open):
                break
            if not join_open:
                alive[0].join(0.2)
            elif agent.stop.wait(_LOOK_S):
                break
        for thread in running.values():
            # One that only waits for the market does nothing any more once ``stop`` is set.
            while thread.is_alive() and not (agent.stop.is_set() and thread.waits):
                thread.join(0.05)
        for thread in running.values():
            if thread.failed is not None:
                raise thread.failed
        return [deal for deal in agent.deals.deals() if deal.name in running]

    def _join_open(self) -> None:
        """Join what is open and not joined yet; what is refused is told once."""
        agent = self._agent
        for market in agent.deals.markets():
            try:
                found = [str(task["task"]) for task in agent.tasks("open", server=market.server)]
            except (Unreachable, TooManyRequests) as error:
                agent.tell({"event": "unreachable", "sentence": str(error)})
                continue
            known = {deal.name for deal in agent.deals.deals()} | self._unwanted
            for task in found:
                name = f"{key_id(market.key)}/{task}"
                if name in known:
                    continue
                try:
                    agent.join(task, server=market.server)
                    agent.tell({"event": "joined", "task": task})
                except (Unreachable, TooManyRequests) as error:
                    agent.tell({"event": "unreachable", "task": task, "sentence": str(error)})
                except FedbourseError as error:  # one task that does not fit hides no other
                    self._unwanted.add(name)
                    agent.tell({"event": "not-joined", "task": task, "sentence": str(error)})
