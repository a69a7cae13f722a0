"""The table of cheats: where an honest market is bent, and why a device refuses it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from json import dumps
from typing import Any

from fedbourse.encoding.canonical import canonical
from fedbourse.protocol.keys import SigningKey
from fedbourse.testing.device.malicious_market import (
    CARD,
    PAYMENT,
    ROUNDS,
    Asked,
    Raw,
    model_of,
    problem,
)
from fedbourse.units import credits_text

Bend = Callable[[Any], Any]
_UNPAID = {"earned_micro": 0, "held_micro": 0}


@dataclass(frozen=True)
class Case:
    """One cheat."""

    id: str
    place: str
    bend: Bend
    reason: str = ""
    """Why the device refuses; empty where there is no response to be understood at all."""
    says: str = ""
    """What its sentence says."""


def cases(place: str, reason: str, *rows: tuple[Any, ...]) -> list[Case]:
    """Return cheats at one place, refused for one reason: id, bend, and what the sentence says."""
    return [Case(id, place, bend, reason, *says) for id, bend, *says in rows]


def items(**changed: Any) -> Bend:
    """Change items of a document."""
    return lambda document: {**document, **changed}


def without(name: str) -> Bend:
    """Leave an item of a document out."""
    return lambda document: {key: value for key, value in document.items() if key != name}


def announced(bend: Bend) -> Bend:
    """Bend what is signed or said of a task once it is announced, and only then."""
    return lambda document: bend(document) if document["state"] == "announced" else document


def raw(text: str) -> Bend:
    return lambda _: Raw(text.encode())


def total(text: str) -> Bend:
    """Write P in a way that no library would."""
    return announced(
        lambda document: Raw(
            dumps(document).replace('"total_budget": 1.0', f'"total_budget": {text}').encode()
        )
    )


OFFERS = [
    *cases(
        "task",
        "",
        ("total NaN", total("NaN"), "an invalid document"),
        ("total infinite", total("Infinity"), "an invalid document"),
        ("total 1e999", total("1e999"), "an invalid document"),
        ("total of many digits", total("9" * 5000), "an invalid document"),
        ("reward huge", announced(items(reward_micro=10**400)), "an invalid document"),
    ),
    *cases(
        "task",
        "offer",
        ("total 0", announced(items(total_budget=0)), "above 0"),
        ("total below 0", announced(items(total_budget=-1.0)), "above 0"),
        ("total none", announced(items(total_budget=None)), "a number"),
        ("total text", announced(items(total_budget="1")), "a number"),
        ("total true", announced(items(total_budget=True)), "a number"),
        ("reward 0", announced(items(reward_micro=0)), "at least 1"),
        ("reward below 0", announced(items(reward_micro=-5)), "at least 1"),
        ("reward none", announced(items(reward_micro=None)), "a number"),
        ("reward a list", announced(items(reward_micro=[1])), "a number"),
        ("reward a part", announced(items(reward_micro=2.5)), "a whole number"),
        ("no offer", announced(items(offer=None)), "without an offer"),
        ("no tick", announced(items(tick=None)), "without an offer"),
    ),
    *cases(
        "task",
        "document",
        ("tick text", announced(items(tick="0")), "has tick '0'"),
        ("state a number", announced(items(state=7)), "has state 7"),
        ("state missing", announced(without("state")), "no state"),
        ("events text", announced(items(events="3")), "has events '3'"),
        ("a task that is a list", announced(lambda _: [1]), "not an object"),
        ("a task that is nothing", announced(lambda _: None), "not an object"),
    ),
]


def signed_by_another(item: str) -> Bend:
    """Sign an item of a document with a key that is not the market's."""
    return lambda document: {
        **document,
        "market_signature": SigningKey.generate().sign(canonical(document[item])),
    }


LEAST = 1_999_998
"""floor((1 - 1e-6) r R/P) for r = 2/3 at P = 1 and R = 3 credits."""
TERMS = [
    *cases(
        "terms",
        "changed-terms",
        ("budget higher", items(budget=4.0), "budget 4"),
        ("budget lower", items(budget=0.001), "budget 0.001"),
        ("budget text", items(budget="0.5"), "budget '0.5'"),
        ("budget a list", items(budget=[0.5]), "budget [0.5]"),
        ("budget missing", without("budget"), "budget nothing"),
        ("a tick that never was", items(tick=7), "of tick 7"),
        ("tick true", items(tick=False), "tick False"),
        ("tick missing", without("tick"), "of tick None"),
        ("a total that never was", items(total_budget=0.5), "total_"),
        ("payment below 0", items(payment_micro=-1), "whole number"),
        ("payment a part", items(payment_micro=2e6 + 0.5), "whole"),
        ("payment text", items(payment_micro="2000000"), "whole"),
        ("payment true", items(payment_micro=True), "whole"),
        ("clip", items(clip=100.0), "clip 100"),
        ("rounds", items(rounds=ROUNDS + 1), "rounds 5"),
        ("fewer rounds", items(rounds=1), "rounds 1"),
        ("dimension", items(dimension=3), "dimension 3"),
        ("samples", items(samples=1), "samples 1"),
        ("vesting", items(vesting="upfront"), "vesting 'upfront'"),
        ("unearned", items(unearned="refund"), "unearned 'refund'"),
        ("samples a part", items(samples=20.0), "samples 20.0"),
        ("a line that is no hash", items(previous=7), "previous 7"),
        ("card", items(card="2" * 64), "card '22"),
        ("owner", items(owner="owner:bob"), "owner 'owner:bob'"),
        ("task", items(task="f" * 24), "task 'ff"),
        ("kind", items(kind="plan"), "kind 'plan'"),
        ("a noise scale of its own", items(noise_scale=1e-9), "noise_"),
        ("a sigma of its own", items(sigma=1e-9), "'sigma'"),
        ("an item that is null", items(sigma=None), "'sigma'"),
        ("no kind", without("kind"), "kind nothing"),
    ),
    *cases(
        "terms",
        "price",
        ("payment below the value", items(payment_micro=10), f"least {credits_text(LEAST)}"),
        ("payment 0", items(payment_micro=0), f"at least {credits_text(LEAST)}"),
        (
            "a micro-credit too little",
            items(payment_micro=LEAST - 1),
            f"is {credits_text(LEAST - 1)} credits; at the price that was announced at tick 0 "
            "it is",
        ),
    ),
    *cases(
        "offered",
        "unsigned",
        ("unsigned", items(market_signature=""), "not signed"),
        ("signed by another", signed_by_another("terms"), "not signed"),
    ),
    *cases(
        "offered",
        "document",
        ("no signature", without("market_signature"), "no market_sig"),
        ("signature a number", items(market_signature=7), "7"),
        ("no terms", items(terms=None), "None"),
        ("terms a list", items(terms=[1]), "[1]"),
    ),
    Case("another hash", "offered", items(digest="3" * 64), "changed-terms", "hash"),
    Case("text that is no text", "offered", items(terms={"previous": "\ud800"}), "", "surrogate"),
    *cases(
        "participation",
        "document",
        ("nothing offered", items(terms=None), "not an object"),
        ("a record that is text", lambda _: "text", "not an object"),
        ("a record without replies", without("replies"), "no replies"),
        ("an exit that is text", items(exit="left"), "has exit 'left'"),
        ("a record without lines", without("allocation"), "no allocation"),
        ("a line that is text", items(allocation="signed"), "has allocation"),
        ("a line without state", items(allocation={"delivered": 0, **_UNPAID}), "no state"),
    ),
]


def another_key(_: SigningKey) -> SigningKey:
    return SigningKey.generate()


# What somebody between market and device says: it has not the market's key.
FORGED_OFFERS = [
    *cases(
        "signed task",
        "unsigned",
        (
            "a total of a stranger's",
            announced(items(total_budget=0.5)),
            "the state 'announced' of the task that",
        ),
        ("a reward of a stranger's", announced(items(reward_micro=10**9)), "not signed with"),
        ("an offer of a stranger's", announced(items(offer="a" * 64)), "not signed with"),
        ("a tick of a stranger's", announced(items(tick=5)), "not"),
        ("a card of a stranger's", announced(items(card="a" * 64)), "not signed with"),
        ("an empty signature", announced(items(state_signature="")), "not signed with"),
    ),
    Case(
        "a state without a signature",
        "signed task",
        announced(without("state_signature")),
        "document",
        "no state_signature",
    ),
    *cases(
        "state message",
        "unsigned",
        ("signed for another task", announced(items(task="f" * 24)), "not signed with"),
        ("signed as another kind", announced(items(kind="offer")), "not signed with"),
    ),
    Case("another card, signed", "task", announced(items(card="a" * 64)), "card", "was joined"),
    *cases(
        "signed participation",
        "unsigned",
        (
            "terms of a stranger's",
            items(
                allocation={"state": "offered", "delivered": 0, **_UNPAID},
                terms={"terms": {}, "digest": "", "market_signature": ""},
            ),
            "record of this",
        ),
        (
            "a line declined by a stranger",
            items(allocation={"state": "declined", "delivered": 0, **_UNPAID}),
            "record of this owner",
        ),
        ("a line taken by a stranger", items(allocation=None, terms=None), "record of this owner"),
        (
            "an exit of a stranger's",
            items(allocation=None, terms=None, exit={"reason": "missed"}),
            "record of this",
        ),
    ),
    *cases(
        "participation message",
        "unsigned",
        ("a record of another owner", items(owner="owner:bob"), "record of this owner"),
        ("a record of another task", items(task="f" * 24), "record of this owner"),
    ),
    Case(
        "a record of before",
        "participation",
        items(allocation=None, terms=None, sequence=0),
        "state",
        "as of event 0",
    ),
]

# The same, once a deal is signed and its budget reserved.
FORGED_STATES = [
    *[
        Case(f"{state} {how}", place, bend, "unsigned", f"the state '{state}' of the task that")
        for state in ("cancelled", "completed", "announced", "settled")
        for how, place, bend in (
            ("by a stranger", "signed task", items(state=state)),
            ("by another market", "task", items(state=state)),
        )
    ],
    *cases(
        "signed task",
        "unsigned",
        ("an end of another task", items(state="cancelled"), "not"),
        ("no signature at all", items(state_signature=""), "not"),
    ),
    *cases(
        "signed participation",
        "unsigned",
        (
            "a line declined by a stranger",
            items(allocation={"state": "declined", "delivered": 2, **_UNPAID}),
            "record of this owner",
        ),
        ("a line taken by a stranger", items(allocation=None, terms=None), "record of this owner"),
        (
            "terms of a stranger's",
            items(
                allocation={"state": "offered", "delivered": 2, **_UNPAID},
                terms={"terms": {}, "digest": "", "market_signature": ""},
            ),
            "record of this",
        ),
    ),
]


def asks(number: int, model: bytes | None = None) -> Bend:
    """Ask about a round."""
    return lambda _: Asked(number, model_of(number) if model is None else model)


def doubles(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}d", *numbers)


NAN, INFINITE = float("nan"), float("inf")
QUERIES = [
    *cases(
        "round-request",
        "beyond-rounds",
        ("round T", asks(ROUNDS), "0 to 3"),
        ("round T+1", asks(ROUNDS + 1), "0 to 3"),
        ("round -1", asks(-1), "0 to 3"),
        ("round -5", asks(-5), "0 to 3"),
        ("a huge round", asks(2**70), "0 to 3"),
    ),
    *cases(
        "round-request",
        "past-round",
        ("an old round", asks(0), "is over"),
        ("an old round, another model", asks(0, doubles(9, 9)), "over"),
    ),
    Case(
        "two models in a round",
        "round-request",
        asks(1, doubles(9, 9)),
        "other-model",
        "another model",
    ),
    *cases(
        "round-request",
        "no-model",
        ("a model with NaN", asks(2, doubles(0, NAN)), "finite"),
        ("an infinite model", asks(2, doubles(-INFINITE, 0)), "finite"),
        ("an empty model", asks(2, b""), "found 0"),
        ("a short model", asks(2, doubles(1)), "found 8"),
        ("half a number more", asks(2, b"\0" * 17), "found 17"),
    ),
    Case(
        "ten times the model", "round-request", asks(2, b"\0" * 160), "", "more than the 17 bytes"
    ),
    *cases(
        "headers",
        "round-request",
        ("another hash", items(**{"Fedbourse-Request": "4" * 64}), "hash"),
        ("a hash of no text", items(**{"Fedbourse-Request": ""}), "hash"),
        ("another round", items(**{"Fedbourse-Round": "3"}), "hash"),
        ("round text", items(**{"Fedbourse-Round": "two"}), "lacks a round"),
        ("no round", without("Fedbourse-Round"), "lacks a round"),
        ("no deadline", without("Fedbourse-Deadline"), "lacks a round"),
        ("another deadline", items(**{"Fedbourse-Deadline": "1"}), "hash"),
        ("no signature", without("Fedbourse-Signature"), "or signature"),
    ),
    Case("no time left", "headers", items(**{"Fedbourse-Left-Ms": "-1"}), "late", "ended before"),
    Case(
        "an empty signature",
        "headers",
        items(**{"Fedbourse-Signature": ""}),
        "unsigned",
        "the request of round 2 that",
    ),
    Case(
        "a request signed by another",
        "round-request key",
        another_key,
        "unsigned",
        "not signed with",
    ),
    *cases(
        "round-request message",
        "unsigned",
        ("a signature of another task", items(task="f" * 24), "not"),
        ("a signature of another card", items(card="f" * 64), "not"),
        ("a signature of another round", items(round=1), "not"),
        ("a signature of another model", items(model_hash="f" * 64), "not signed with"),
        ("a signature of another deadline", items(deadline_ms=1), "not signed with"),
        ("a signature of another kind", items(kind="terms"), "not"),
    ),
    Case(
        "updates forgotten",
        "participation",
        items(allocation={"state": "signed", "delivered": 3, **_UNPAID}),
        "forgotten",
        "old copy",
    ),
    *cases(
        "participation",
        "",
        (
            "line declined later",
            items(allocation={"state": "declined", "delivered": 2, **_UNPAID}),
            "declined",
        ),
        ("line taken away", items(allocation=None), "not chosen"),
    ),
]

ESCAPES = Raw(b'{"code": "NotFound", "detail": "\\u001b[2Jgone", "status": 404}', 404)
TRANSPORT = [
    *cases(
        "task",
        "",
        ("a page", raw("<html>welcome</html>"), "an invalid document"),
        ("cut JSON", raw('{"task": "0123'), "an invalid document"),
        ("deep JSON", raw("[" * 50_000), "an invalid document"),
        ("no UTF-8", lambda _: Raw(b'{"a": "\xff"}'), "an invalid document"),
        ("a redirect", lambda _: Raw(b"", 302, {"Location": "http://x/"}), "redirect"),
        ("17 MiB", lambda _: Raw(b" " * (17 * 2**20)), "more than the"),
        ("less than it says", lambda _: Raw(b"{", 200, {"Content-Length": "9"}), "not respond"),
        ("compressed", lambda _: Raw(b"x", 200, {"Content-Encoding": "gzip"}), "compressed"),
        ("never an answer", lambda _: Raw(b"{}", after_s=30.0), "not respond"),
        ("an unknown status", lambda _: Raw(b"x", 299), "an invalid document"),
        ("always busy", lambda _: problem("TooManyRequests", 429), "says the market"),
        ("an unknown reason", lambda _: problem("Bribe", 418), "without a known"),
        ("escape sequences", lambda _: ESCAPES, " [2Jgone"),
    ),
    Case("nothing", "task", raw(""), "document", "not an object"),
    *cases(
        "round-request",
        "",
        (
            "a redirect of the request",
            lambda _: Raw(b"", 307, {"Location": "http://x/"}),
            "redirect",
        ),
        ("never a question", lambda _: Raw(b"", after_s=30.0), "not respond"),
    ),
]


# Receipts: an update has left, so one round is at risk, and never a second.


LESS = PAYMENT // ROUNDS - 1
RECEIPTS = [
    *cases(
        "signed receipt",
        "receipt",
        ("none", lambda _: None),
        ("an empty one", lambda _: {}),
        ("a list", lambda _: [1]),
        ("text", lambda _: "paid"),
        ("receipt a list", items(receipt=[1])),
        ("unsigned", items(market_signature=None)),
        ("signed by another", signed_by_another("receipt")),
    ),
    *cases(
        "receipt",
        "receipt",
        ("another round", items(round=3)),
        ("another owner", items(owner="owner:bob")),
        ("another task", items(task="f" * 24)),
        ("less than due", items(earned_micro=LESS)),
        ("nothing earned", items(earned_micro=0)),
        ("a count that does not rise", items(delivered=1, earned_micro=PAYMENT // ROUNDS)),
        ("no update counted", items(delivered=0, earned_micro=0)),
        ("a count beyond all", items(delivered=9)),
        ("a count true", items(delivered=True)),
        ("a count missing", without("delivered")),
        ("for another update", items(previous="5" * 64)),
        ("an item more", items(bonus=None)),
    ),
    *cases(
        "signed receipt",
        "unpaid",
        ("late, it says", lambda _: problem("Conflict", 409)),
        ("bad, it says", lambda _: problem("InvalidInput", 422)),
    ),
]


# Before anything is joined.


def other_id(name: str) -> Bend:
    """Give the listed task another id."""
    return lambda page: {**page, "tasks": [{**page["tasks"][0], "task": name}]}


ENROLMENTS = [
    *cases(
        "enrol",
        "document",
        ("nothing", lambda _: None),
        ("no key", without("market_public_key")),
        ("a key that is a number", items(market_public_key=7)),
        ("no owner", without("owner")),
    ),
    *cases(
        "enrol",
        "",
        ("another key", items(market_public_key=SigningKey.generate().public)),
        ("a weak key", items(market_public_key="A" * 43)),
    ),
]
CARDS = [
    *cases(
        "card",
        "card",
        ("another hash", items(digest="6" * 64)),
        ("another card", items(card={**CARD.document, "clip": 5.0})),
        ("too few records", items(card={**CARD.document, "samples": 10_000})),
    ),
    *cases(
        "card",
        "document",
        ("no card", without("card")),
        ("a card of nothing", lambda _: None),
    ),
    Case("an unknown item", "card", items(card={**CARD.document, "sigma": 1.0})),
    *cases(
        "tasks",
        "",
        ("pages without an end", items(tasks=[], next="7" * 24)),
        ("tasks that are text", items(tasks=["task"])),
    ),
    Case("a task without an id", "tasks", other_id("../x"), "document"),
]
