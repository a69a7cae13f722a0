"""Every route of the service: who may use it, and a request of theirs that is answered."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedbourse.testing.trading import EVIDENCE
from web.fixtures import World, asked

EVERYBODY = frozenset(
    {
        "stranger",
        "owner's device",
        "owner's token",
        "another owner",
        "another owner's token",
        "buyer",
        "another buyer",
        "buyer who only reads",
        "auditor",
        "operator",
    }
)
"""Those whose proof is good, and those who claim none."""
KNOWN = EVERYBODY - {"stranger"}
OWNERS = frozenset({"owner's device", "owner's token", "another owner", "another owner's token"})
ITS_OWNER = frozenset({"owner's device", "owner's token"})
READERS = frozenset({"auditor", "operator", "buyer who only reads"})
ITS_BUYER = frozenset({"buyer"})
BY_DEVICE = frozenset({"owner's device"})
OPERATOR = frozenset({"operator"})
NOBODY: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Entry:
    """A route in a state in which those it is for are answered."""

    may: frozenset[str]
    """Who is not refused; the first of them by name makes the rightful request."""
    by: str
    """Who makes the rightful request."""
    path: object
    body: object = None
    status: int = 200
    query: str = ""


def task(name, rest=""):
    return lambda world: f"/v1/tasks/{getattr(world, name).id}{rest}"


def at(path):
    return lambda world: path


def interest(world):
    return {"value": world.ann.value, "previous": world.open.card.digest}


def plan(world):
    return {"tick": world.announced.tick, "budget": 0.5, "previous": world.announced.offer}


def enrolment(world):
    return {"token": world.enrolment, "public_key": world.new_key.public}


def nothing(world):
    return {}


# In this order the rightful requests follow each other. "{task}" of each is in the right state.
TABLE: dict[tuple[str, str], Entry] = {
    ("GET", "/v1/health"): Entry(EVERYBODY, "stranger", at("/v1/health")),
    ("GET", "/v1/market"): Entry(EVERYBODY, "stranger", at("/v1/market")),
    ("GET", "/v1/log"): Entry(EVERYBODY, "stranger", at("/v1/log")),
    ("GET", "/v1/log/head"): Entry(EVERYBODY, "stranger", at("/v1/log/head")),
    ("GET", "/v1/me"): Entry(KNOWN, "owner's device", at("/v1/me")),
    ("GET", "/v1/tasks"): Entry(EVERYBODY, "stranger", at("/v1/tasks")),
    ("GET", "/v1/tasks/{task}"): Entry(ITS_BUYER | READERS, "buyer", task("draft")),
    ("GET", "/v1/tasks/{task}/card"): Entry(ITS_BUYER | READERS, "buyer", task("draft", "/card")),
    ("GET", "/v1/tasks/{task}/events"): Entry(
        ITS_BUYER | READERS, "buyer", task("draft", "/events")
    ),
    ("GET", "/v1/tasks/{task}/head"): Entry(ITS_BUYER | READERS, "buyer", task("draft", "/head")),
    # A stream of a draft would not end; that of a task that has ended is everybody's.
    ("GET", "/v1/tasks/{task}/stream"): Entry(EVERYBODY, "stranger", task("completed", "/stream")),
    ("PUT", "/v1/tasks/{task}/reference"): Entry(
        ITS_BUYER, "buyer", task("unjudged", "/reference"), lambda world: EVIDENCE["reference"]
    ),
    ("GET", "/v1/tasks/{task}/reference"): Entry(
        ITS_BUYER | READERS, "buyer", task("judged", "/reference")
    ),
    ("GET", "/v1/tasks/{task}/rounds/{number}/model"): Entry(
        ITS_BUYER | {"buyer who only reads"}, "buyer", task("waiting", "/rounds/0/model")
    ),
    ("PUT", "/v1/tasks/{task}/rounds/{number}/reference"): Entry(
        ITS_BUYER,
        "buyer",
        task("waiting", "/rounds/0/reference"),
        lambda world: bytes(32 + 16 * world.waiting.card.dimension),
    ),
    ("GET", "/v1/tasks/{task}/evidence"): Entry(
        ITS_BUYER | ITS_OWNER | READERS, "buyer", task("judged", "/evidence")
    ),
    ("GET", "/v1/tasks/{task}/evidence/outlook"): Entry(
        ITS_BUYER | {"operator", "buyer who only reads"},
        "buyer",
        task("expected", "/evidence/outlook"),
    ),
    ("GET", "/v1/tasks/{task}/rounds/{number}/kept"): Entry(
        READERS, "auditor", task("judged", "/rounds/0/kept")
    ),
    ("GET", "/v1/tasks/{task}/rounds/{number}/kept/updates"): Entry(
        READERS, "auditor", task("judged", "/rounds/0/kept/updates")
    ),
    ("GET", "/v1/tasks/{task}/report"): Entry(
        ITS_BUYER | READERS, "buyer", task("completed", "/report")
    ),
    ("GET", "/v1/tasks/{task}/what-if"): Entry(
        ITS_BUYER | READERS, "buyer", task("announced", "/what-if"), query="rewards=1,2.5"
    ),
    ("GET", "/v1/tasks/{task}/model"): Entry(
        ITS_BUYER | {"operator", "buyer who only reads"}, "buyer", task("completed", "/model")
    ),
    ("GET", "/v1/tasks/{task}/participation"): Entry(
        OWNERS, "owner's device", task("training", "/participation")
    ),  # another owner sees its own: nothing
    ("GET", "/v1/tasks/{task}/proof"): Entry(
        ITS_OWNER, "owner's device", task("training", "/proof")
    ),
    ("GET", "/v1/tasks/{task}/round-request"): Entry(
        ITS_OWNER, "owner's device", task("training", "/round-request")
    ),
    ("GET", "/v1/tasks/{task}/rounds/{number}/updates"): Entry(
        READERS, "auditor", task("training", "/rounds/0/updates")
    ),
    ("GET", "/v1/tasks/{task}/monitoring"): Entry(
        OWNERS | READERS, "auditor", task("training", "/monitoring")
    ),  # an owner sees its own, or nothing
    ("GET", "/v1/tasks/{task}/allocations"): Entry(
        READERS, "auditor", task("training", "/allocations")
    ),
    ("GET", "/v1/accounts/{party}"): Entry(
        ITS_OWNER | READERS, "owner's device", lambda world: f"/v1/accounts/{world.ann.name}"
    ),
    ("GET", "/v1/accounts/{party}/statement"): Entry(
        ITS_OWNER | READERS,
        "owner's device",
        lambda world: f"/v1/accounts/{world.ann.name}/statement",
    ),
    ("GET", "/v1/accounts/{party}/payouts"): Entry(
        ITS_OWNER | OPERATOR,
        "owner's device",
        lambda world: f"/v1/accounts/{world.ann.name}/payouts",
    ),
    ("GET", "/v1/payouts"): Entry(OPERATOR, "operator", at("/v1/payouts")),
    ("GET", "/v1/accounts"): Entry(READERS, "auditor", at("/v1/accounts")),
    ("GET", "/v1/transfers"): Entry(READERS, "auditor", at("/v1/transfers")),
    ("GET", "/v1/tokens"): Entry(READERS, "operator", at("/v1/tokens")),
    ("POST", "/v1/tokens"): Entry(
        OPERATOR,
        "operator",
        at("/v1/tokens"),
        lambda world: {"party": "buyer:acme", "scopes": ["buyer"]},
        201,
    ),
    ("DELETE", "/v1/tokens/{id}"): Entry(
        OPERATOR, "operator", lambda world: f"/v1/tokens/{world.token_id}"
    ),
    ("POST", "/v1/enrolment-tokens"): Entry(
        OPERATOR, "operator", at("/v1/enrolment-tokens"), lambda world: {"owner": "owner:ann"}, 201
    ),
    ("POST", "/v1/enrolments"): Entry(
        frozenset({"new device"}), "new device", at("/v1/enrolments"), enrolment, 201
    ),
    ("POST", "/v1/tasks"): Entry(
        frozenset({"buyer", "another buyer"}),
        "buyer",
        at("/v1/tasks"),
        lambda world: world.draft.card.document,
        201,
    ),
    ("POST", "/v1/tasks/{task}/open"): Entry(ITS_BUYER, "buyer", task("draft", "/open"), nothing),
    ("PUT", "/v1/tasks/{task}/interest"): Entry(
        frozenset({"owner's device", "another owner"}),
        "owner's device",
        task("open", "/interest"),
        interest,
    ),
    ("POST", "/v1/tasks/{task}/announce"): Entry(
        ITS_BUYER, "buyer", task("open", "/announce"), nothing
    ),
    ("PUT", "/v1/tasks/{task}/plan"): Entry(
        BY_DEVICE, "owner's device", task("announced", "/plan"), plan
    ),
    ("POST", "/v1/tasks/{task}/terms"): Entry(
        BY_DEVICE, "owner's device", task("settled", "/terms"), World.decision
    ),
    ("POST", "/v1/tasks/{task}/train"): Entry(
        ITS_BUYER, "buyer", task("settled", "/train"), nothing
    ),
    ("PUT", "/v1/tasks/{task}/rounds/{number}/update"): Entry(
        BY_DEVICE, "owner's device", task("training", "/rounds/0/update"), World.update
    ),
    ("POST", "/v1/tasks/{task}/cancel"): Entry(
        ITS_BUYER | OPERATOR, "buyer", task("second_draft", "/cancel"), nothing
    ),
    ("POST", "/v1/tasks/{task}/erasure"): Entry(
        BY_DEVICE, "owner's device", task("completed", "/erasure"), nothing
    ),
    # By now the open one is announced.
    ("DELETE", "/v1/tasks/{task}/interest"): Entry(
        ITS_OWNER, "owner's token", task("open", "/interest")
    ),
    ("POST", "/v1/deposits"): Entry(
        ITS_BUYER | OPERATOR,
        "buyer",
        at("/v1/deposits"),
        lambda world: {"reference": "bank-1"},
        201,
    ),
    ("POST", "/v1/withdrawals"): Entry(
        ITS_BUYER,
        "buyer",
        at("/v1/withdrawals"),
        lambda world: {"party": "buyer:acme", "amount_micro": 7, "destination": "home"},
        201,
    ),
    ("POST", "/v1/payouts/{payout}/confirm"): Entry(
        OPERATOR, "operator", lambda world: f"/v1/payouts/{world.sent[0]}/confirm", nothing
    ),
    ("POST", "/v1/payouts/{payout}/return"): Entry(
        OPERATOR,
        "operator",
        lambda world: f"/v1/payouts/{world.sent[1]}/return",
        lambda world: {"reason": "no such account"},
    ),
}
ROUTES = sorted(TABLE)
WRITES = [route for route in ROUTES if route[0] != "GET"]


def plain(route):
    """Say whether a route does not even look at who asks."""
    return route[1] in ("/v1/health", "/v1/market")


def request_of(world, route, person, **options):
    entry = TABLE[route]
    body = entry.body(world) if entry.body else None
    who = person_of(world, person)
    now_ms = world.trading.time_ms
    options = {"query": entry.query} | options
    return asked(who, route[0], entry.path(world), body=body, now_ms=now_ms, **options)


def person_of(world, name):
    if name == "new device":
        return replace(world.people["stranger"], key=world.new_key)
    return world.people[name]
