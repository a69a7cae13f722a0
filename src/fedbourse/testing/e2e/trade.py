"""Two trades over HTTP, in which every write that the market knows happens.

The first goes by itself: owners reply until P converged, one declines, the others reply until P
converged without it, and the buyer does not wait for the end of the review; one misses the last
round, and what it did not earn goes to the fund. The second is announced by its deadline; one owner
misses a tick, the review ends by itself, and the buyer cancels the task while it trains.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from fedbourse.cli.verify import task_records
from fedbourse.encoding.canonical import canonical
from fedbourse.game import share_at
from fedbourse.market.audit import Check, verify_task
from fedbourse.protocol.keys import SigningKey, key_id
from fedbourse.tasks.card import TaskCard

if TYPE_CHECKING:
    from fedbourse.protocol.connection import Connection
    from fedbourse.testing.e2e.supervised import Supervised

from fedbourse.testing.small_card import SMALL_CARD

BUYER, AUDITOR, SPARE = "buyer:acme", "auditor:kay", "buyer:gone"
VALUES = {"owner:ann": 1.0, "owner:bob": 1.1, "owner:cy": 1.2}
CARD = SMALL_CARD | {
    "rounds": 2,
    "max_rho": 100.0,
    "deadlines": {"interest_s": 600.0, "round_s": 300.0},
}
_SOON_S = 60


class Client:
    """Somebody who calls the market, and tells the test what was acknowledged."""

    def __init__(self, market: Supervised, party: str, connection: Connection) -> None:
        self.market, self.party, self.connection = market, party, connection

    def write(
        self, kind: str, path: str, body: object = None, *, name: str = "", keeper: str = ""
    ) -> Any:
        """Send a write until there is a response, always with the same key, and note it."""
        key = "/".join(filter(None, (kind, self.party, name))).ljust(8, ".")
        method = "put" if kind in ("interest", "plan", "update") else "post"
        ask = getattr(self.connection, "put_bytes" if kind == "update" else method)
        with self.market.sending(keeper or self.party, key):
            document = self.market.patiently(lambda: ask(path, body, idempotency_key=key))
            self.note(kind, keeper or self.party, key, document)
        return document

    def delete(self, kind: str, path: str) -> Any:
        key = f"{kind}/{self.party}"
        document = self.market.patiently(lambda: self.connection.delete(path, idempotency_key=key))
        self.note(kind, self.party, key, document)
        return document

    def note(self, kind: str, keeper: str, key: str, document: Any) -> None:
        from fedbourse.testing.e2e.invariants import Acknowledged

        self.market.acknowledged.append(Acknowledged(kind, keeper, key, document))

    def get(self, path: str) -> Any:
        return self.market.patiently(lambda: self.connection.get(path))


class Owner(Client):
    """An owner with a device, which bids by its value."""

    def __init__(self, market: Supervised, party: str, value: float, token: str) -> None:
        self.key = SigningKey.generate()
        super().__init__(market, party, market.connection(key=self.key))
        self.value = value
        body = {"token": token, "public_key": self.key.public}
        self.write("enrol", "/v1/enrolments", body, keeper=f"device:{key_id(self.key.public)}")

    def like(self, task: dict[str, Any], *, report: bool = False) -> None:
        body = {"value": self.value if report else None, "previous": task["card"]}
        self.write("interest", f"/v1/tasks/{task['task']}/interest", body, name=task["task"])

    def plan(self, task: dict[str, Any]) -> None:
        total = task["total_budget"]
        budget = total * share_at(self.value, total, reward=task["reward_micro"] / 1e6)
        body = {"tick": task["tick"], "budget": budget, "previous": task["offer"]}
        name = f"{task['task']}/{task['tick']}"
        self.write("plan", f"/v1/tasks/{task['task']}/plan", body, name=name)

    def decide(self, id: str, *, accept: bool) -> None:
        offered = self.get(f"/v1/tasks/{id}/participation")["terms"]
        body: dict[str, Any] = {"accept": accept, "digest": offered["digest"]}
        if accept:
            body["signature"] = self.key.sign(canonical(offered["terms"]))
        name = f"{id}/{offered['digest'][:8]}"  # a task may be settled again
        self.write("sign" if accept else "decline", f"/v1/tasks/{id}/terms", body, name=name)

    def update(self, id: str, round: int) -> None:
        budget = self.get(f"/v1/tasks/{id}/participation")["allocation"]["budget"]
        content = update_bytes(TaskCard.of(CARD), id, budget)
        path = f"/v1/tasks/{id}/rounds/{round}/update"
        self.write("update", path, content, name=f"{id}/{round}")


def update_bytes(card: TaskCard, task: str, budget: float) -> bytes:
    """Return noise of the right size, the same for everybody."""
    scale = card.privacy_terms(task=task, budget=budget).scale
    vector = np.full(card.dimension, scale)
    return vector.astype("<f8").tobytes()


class Trade:
    """Everything from the first token to the last payout."""

    def __init__(self, market: Supervised) -> None:
        self.market = market
        self.tasks: list[str] = []
        self._connections: list[Connection] = []
        secret = (market.folder / "operator.token").read_text().strip()
        self.operator = self._client("operator:main", secret)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def run(self) -> dict[str, int]:
        """Carry everything out, and return what everybody holds at the end."""
        self._let_in()
        self._pay_in()
        self._first()
        self._second()
        self._take_out()
        records = self.market.check()
        assert not [name for name in records.balances if name.startswith("escrow")]
        return records.balances

    def verified(self) -> list[Check]:
        """Verify both tasks as an auditor, and the first as each of its owners."""
        checks = verify_task(**self._seen(self.auditor, self.tasks[0]))
        assert all(check.passed for check in checks), checks
        checks += verify_task(**self._seen(self.auditor, self.tasks[1]))
        for owner in self.owners:
            checks += verify_task(**self._seen(owner, self.tasks[0]))
        return checks

    def _seen(self, who: Client, task: str) -> dict[str, Any]:
        return self.market.patiently(lambda: task_records(who.connection, task))

    def client(self, party: str) -> Client:
        """Let somebody in with a token."""
        return self._client(party, self._token(party)["token"])

    def owner(self, party: str, value: float) -> Owner:
        """Let an owner in with a device."""
        made = self.operator.write(
            "enrolment", "/v1/enrolment-tokens", {"owner": party}, name=party
        )
        owner = Owner(self.market, party, value, made["token"])
        self._connections.append(owner.connection)
        return owner

    def _client(self, party: str, token: str) -> Client:
        self._connections.append(self.market.connection(token=token))
        return Client(self.market, party, self._connections[-1])

    def _token(self, party: str) -> dict[str, Any]:
        body = {"party": party, "scopes": [party.partition(":")[0]]}
        return self.operator.write("token", "/v1/tokens", body, name=party)

    def _let_in(self) -> None:
        self.buyer, self.auditor = self.client(BUYER), self.client(AUDITOR)
        self.operator.delete("revoke", f"/v1/tokens/{self._token(SPARE)['id']}")
        self.owners = [self.owner(party, value) for party, value in VALUES.items()]

    def _pay_in(self) -> None:
        line = {"reference": "bank-1", "party": BUYER, "credits": "10"}
        received = self.market.folder / "payments" / "received.jsonl"
        received.write_text(json.dumps(line) + "\n")
        self.buyer.write("deposit", "/v1/deposits", {"reference": "bank-1"})

    def _opened(self) -> dict[str, Any]:
        name = str(len(self.tasks))
        task = self.buyer.write("create", "/v1/tasks", CARD, name=name)
        self.tasks.append(task["task"])
        self.buyer.write("open", f"/v1/tasks/{task['task']}/open", {}, name=name)
        return task

    def _first(self) -> None:
        task = self._opened()
        id = task["task"]
        for owner in self.owners:
            owner.like(task, report=owner is self.owners[0])
        task = self.buyer.write("announce", f"/v1/tasks/{id}/announce", {})
        self._discover(task, self.owners)
        ann, bob, cy = self.owners
        for owner in self.owners:
            owner.decide(id, accept=owner is not cy)
        task = self._until(id, lambda now: now["state"] == "announced")
        self._discover(task, [ann, bob])
        for owner in (ann, bob):
            owner.decide(id, accept=True)
        self._until(id, lambda now: now["review_ends_ms"] is not None)
        self.buyer.write("train", f"/v1/tasks/{id}/train", {})
        for owner in (ann, bob):
            owner.update(id, 0)
        self._until(id, lambda now: now["round"] == 1)
        ann.update(id, 1)
        self.market.pass_time(301)
        self._until(id, lambda now: now["state"] == "completed")

    def _second(self) -> None:
        task = self._opened()
        id = task["task"]
        for owner in self.owners:
            owner.like(task)
        self.market.pass_time(601)
        task = self._until(id, lambda now: now["state"] == "announced")
        # One reply is missing: the market waits for it as long as the tick lasts, and no longer.
        ann, bob, _ = self.owners
        for owner in (ann, bob):
            owner.plan(task)
        self.market.pass_time(61)
        task = self._until(id, lambda now: now["tick"] > 0, "settled")
        self._discover(task, [ann, bob])
        for owner in (ann, bob):
            owner.decide(id, accept=True)
        self._until(id, lambda now: now["review_ends_ms"] is not None)
        self.market.pass_time(601)
        self._until(id, lambda now: now["state"] == "training")
        ann.update(id, 0)
        self.buyer.write("cancel", f"/v1/tasks/{id}/cancel", {"reason": "enough"})
        bob.write("erase", f"/v1/tasks/{id}/erasure", {}, name=id)

    def _discover(self, task: dict[str, Any], owners: list[Owner]) -> None:
        """Let these owners reply to every tick until the task is settled."""
        while task["state"] == "announced":
            for owner in owners:
                owner.plan(task)
            tick = task["tick"]
            task = self._until(task["task"], lambda now, tick=tick: now["tick"] > tick, "settled")

    def _take_out(self) -> None:
        for who, amount in ((self.owners[0], 700_001), (self.buyer, 1_000_000)):
            body = {"amount_micro": amount, "destination": f"the bank of {who.party}"}
            who.write("withdraw", "/v1/withdrawals", body)
        self._soon(self._all_sent)
        arrived, came_back = (each["id"] for each in self.operator.get("/v1/payouts")["payouts"])
        self.operator.write("confirm", f"/v1/payouts/{arrived}/confirm", {})
        body = {"reason": "no such account"}
        self.operator.write("return", f"/v1/payouts/{came_back}/return", body)

    def _all_sent(self) -> bool:
        self.operator.get("/v1/health")  # a market that was struck is started again by this
        rows = self.market.records().tables["payouts"]
        return all(row["state"] not in ("requested", "failed") for row in rows)

    def _until(self, id: str, what: Any, *states: str) -> dict[str, Any]:
        """Wait until the clock has moved a task on."""
        seen: dict[str, Any] = {}

        def came() -> bool:
            seen.update(self.operator.get(f"/v1/tasks/{quote(id)}"))
            return what(seen) or seen["state"] in states

        self._soon(came)
        return seen

    def _soon(self, what: Any) -> None:
        end = time.monotonic() + _SOON_S
        while not what():
            assert time.monotonic() < end
            time.sleep(0.02)
