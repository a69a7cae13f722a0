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


def items(**changed: Any) -> Bend:
    """Change items of a document."""
    return lambda document: {**document, **changed}


def without(name: str) -> Bend:
    """Leave an item of a document out."""
    return lambda document: {key: value for key, value in document.items() if key != name}


def announced(bend: Bend) -> Bend:
    """Bend what is announced only."""
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
    Case("total NaN", "task", total("NaN"), "", "an invalid document"),
    Case("total infinite", "task", total("Infinity"), "", "an invalid document"),
    Case("total 1e999", "task", total("1e999"), "", "an invalid document"),
    Case("total of many digits", "task", total("9" * 5000), "", "an invalid document"),
    Case("total 0", "task", announced(items(total_budget=0)), "offer", "above 0"),
    Case("total below 0", "task", announced(items(total_budget=-1.0)), "offer", "above 0"),
    Case("total none", "task", announced(items(total_budget=None)), "offer", "a number"),
    Case("total text", "task", announced(items(total_budget="1")), "offer", "a number"),
    Case("total true", "task", announced(items(total_budget=True)), "offer", "a number"),
    Case("reward 0", "task", announced(items(reward_micro=0)), "offer", "at least 1"),
    Case("reward below 0", "task", announced(items(reward_micro=-5)), "offer", "at least 1"),
    Case("reward none", "task", announced(items(reward_micro=None)), "offer", "a number"),
    Case("reward a list", "task", announced(items(reward_micro=[1])), "offer", "a number"),
    Case("reward a part", "task", announced(items(reward_micro=2.5)), "offer", "a whole number"),
    Case("reward huge", "task", announced(items(reward_micro=10**400)), "", "an invalid document"),
    Case("no offer", "task", announced(items(offer=None)), "offer", "without an offer"),
    Case("no tick", "task", announced(items(tick=None)), "offer", "without an offer"),
    Case("tick text", "task", announced(items(tick="0")), "document", "has tick '0'"),
    Case("state a number", "task", announced(items(state=7)), "document", "has state 7"),
    Case("state missing", "task", announced(without("state")), "document", "no state"),
    Case("events text", "task", announced(items(events="3")), "document", "has events '3'"),
    Case("a task that is a list", "task", announced(lambda _: [1]), "document", "not an object"),
    Case("a task that is nothing", "task", announced(lambda _: None), "document", "not an object"),
]


def signed_by_another(offered: dict[str, Any]) -> dict[str, Any]:
    other = SigningKey.generate().sign(canonical(offered["terms"]))
    return {**offered, "market_signature": other}


LEAST = 1_999_998
"""floor((1 - 1e-6) r R/P) for r = 2/3 at P = 1 and R = 3 credits."""
TERMS = [
    Case("budget higher", "terms", items(budget=4.0), "changed-terms", "budget 4"),
    Case("budget lower", "terms", items(budget=0.001), "changed-terms", "budget 0.001"),
    Case("budget text", "terms", items(budget="0.5"), "changed-terms", "budget '0.5'"),
    Case("budget a list", "terms", items(budget=[0.5]), "changed-terms", "budget [0.5]"),
    Case("budget missing", "terms", without("budget"), "changed-terms", "budget nothing"),
    Case(
        "payment below the value",
        "terms",
        items(payment_micro=10),
        "price",
        f"least {credits_text(LEAST)}",
    ),
    Case("payment 0", "terms", items(payment_micro=0), "price", f"at least {credits_text(LEAST)}"),
    Case(
        "a micro-credit too little",
        "terms",
        items(payment_micro=LEAST - 1),
        "price",
        f"is {credits_text(LEAST - 1)} credits; at the price that was announced at tick 0 it is",
    ),
    Case("a tick that never was", "terms", items(tick=7), "changed-terms", "of tick 7"),
    Case("tick true", "terms", items(tick=False), "changed-terms", "tick False"),
    Case("tick missing", "terms", without("tick"), "changed-terms", "of tick None"),
    Case("a total that never was", "terms", items(total_budget=0.5), "changed-terms", "total_"),
    Case("payment below 0", "terms", items(payment_micro=-1), "changed-terms", "whole number"),
    Case("payment a part", "terms", items(payment_micro=2e6 + 0.5), "changed-terms", "whole"),
    Case("payment text", "terms", items(payment_micro="2000000"), "changed-terms", "whole"),
    Case("payment true", "terms", items(payment_micro=True), "changed-terms", "whole"),
    Case("clip", "terms", items(clip=100.0), "changed-terms", "clip 100"),
    Case("rounds", "terms", items(rounds=ROUNDS + 1), "changed-terms", "rounds 5"),
    Case("fewer rounds", "terms", items(rounds=1), "changed-terms", "rounds 1"),
    Case("dimension", "terms", items(dimension=3), "changed-terms", "dimension 3"),
    Case("samples", "terms", items(samples=1), "changed-terms", "samples 1"),
    Case("vesting", "terms", items(vesting="upfront"), "changed-terms", "vesting 'upfront'"),
    Case("unearned", "terms", items(unearned="refund"), "changed-terms", "unearned 'refund'"),
    Case("samples a part", "terms", items(samples=20.0), "changed-terms", "samples 20.0"),
    Case("a line that is no hash", "terms", items(previous=7), "changed-terms", "previous 7"),
    Case("card", "terms", items(card="2" * 64), "changed-terms", "card '22"),
    Case("owner", "terms", items(owner="owner:bob"), "changed-terms", "owner 'owner:bob'"),
    Case("task", "terms", items(task="f" * 24), "changed-terms", "task 'ff"),
    Case("kind", "terms", items(kind="plan"), "changed-terms", "kind 'plan'"),
    Case("a noise scale of its own", "terms", items(noise_scale=1e-9), "changed-terms", "noise_"),
    Case("a sigma of its own", "terms", items(sigma=1e-9), "changed-terms", "'sigma'"),
    Case("an item that is null", "terms", items(sigma=None), "changed-terms", "'sigma'"),
    Case("no kind", "terms", without("kind"), "changed-terms", "kind nothing"),
    Case("unsigned", "offered", items(market_signature=""), "unsigned", "not signed"),
    Case("no signature", "offered", without("market_signature"), "document", "no market_sig"),
    Case("signature a number", "offered", items(market_signature=7), "document", "7"),
    Case("signed by another", "offered", signed_by_another, "unsigned", "not signed"),
    Case("another hash", "offered", items(digest="3" * 64), "changed-terms", "hash"),
    Case("no terms", "offered", items(terms=None), "document", "None"),
    Case("terms a list", "offered", items(terms=[1]), "document", "[1]"),
    Case("text that is no text", "offered", items(terms={"previous": "\ud800"}), "", "surrogate"),
    Case("nothing offered", "participation", items(terms=None), "document", "not an object"),
    Case("a record that is text", "participation", lambda _: "text", "document", "not an object"),
    Case("a record without replies", "participation", without("replies"), "document", "no replies"),
    Case(
        "an exit that is text", "participation", items(exit="left"), "document", "has exit 'left'"
    ),
    Case(
        "a record without lines",
        "participation",
        without("allocation"),
        "document",
        "no allocation",
    ),
    Case(
        "a line that is text",
        "participation",
        items(allocation="signed"),
        "document",
        "has allocation",
    ),
    Case(
        "a line without state",
        "participation",
        items(allocation={"delivered": 0, **_UNPAID}),
        "document",
        "no state",
    ),
]


def another_key(_: SigningKey) -> SigningKey:
    return SigningKey.generate()


def when(state: str, bend: Bend) -> Bend:
    """Bend what is signed or said of a task in one state only."""
    return lambda document: bend(document) if document["state"] == state else document


# What somebody between market and device says: it has not the market's key.
FORGED_OFFERS = [
    Case(
        "a total of a stranger's",
        "signed task",
        announced(items(total_budget=0.5)),
        "unsigned",
        "the state 'announced' of the task that",
    ),
    Case(
        "a reward of a stranger's",
        "signed task",
        announced(items(reward_micro=10**9)),
        "unsigned",
        "not signed with",
    ),
    Case(
        "an offer of a stranger's",
        "signed task",
        announced(items(offer="a" * 64)),
        "unsigned",
        "not signed with",
    ),
    Case("a tick of a stranger's", "signed task", announced(items(tick=5)), "unsigned", "not"),
    Case(
        "a card of a stranger's",
        "signed task",
        announced(items(card="a" * 64)),
        "unsigned",
        "not signed with",
    ),
    Case(
        "a state without a signature",
        "signed task",
        announced(without("state_signature")),
        "document",
        "no state_signature",
    ),
    Case(
        "an empty signature",
        "signed task",
        announced(items(state_signature="")),
        "unsigned",
        "not signed with",
    ),
    Case(
        "signed for another task",
        "state message",
        when("announced", items(task="f" * 24)),
        "unsigned",
        "not signed with",
    ),
    Case(
        "signed as another kind",
        "state message",
        when("announced", items(kind="offer")),
        "unsigned",
        "not signed with",
    ),
    Case("another card, signed", "task", announced(items(card="a" * 64)), "card", "was joined"),
    Case(
        "terms of a stranger's",
        "signed participation",
        items(
            allocation={"state": "offered", "delivered": 0, **_UNPAID},
            terms={"terms": {}, "digest": "", "market_signature": ""},
        ),
        "unsigned",
        "record of this",
    ),
    Case(
        "a line declined by a stranger",
        "signed participation",
        items(allocation={"state": "declined", "delivered": 0, **_UNPAID}),
        "unsigned",
        "record of this owner",
    ),
    Case(
        "a line taken by a stranger",
        "signed participation",
        items(allocation=None, terms=None),
        "unsigned",
        "record of this owner",
    ),
    Case(
        "an exit of a stranger's",
        "signed participation",
        items(allocation=None, terms=None, exit={"reason": "missed"}),
        "unsigned",
        "record of this",
    ),
    Case(
        "a record of another owner",
        "participation message",
        items(owner="owner:bob"),
        "unsigned",
        "record of this owner",
    ),
    Case(
        "a record of another task",
        "participation message",
        items(task="f" * 24),
        "unsigned",
        "record of this owner",
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
    Case("an end of another task", "signed task", items(state="cancelled"), "unsigned", "not"),
    Case("no signature at all", "signed task", items(state_signature=""), "unsigned", "not"),
    Case(
        "a line declined by a stranger",
        "signed participation",
        items(allocation={"state": "declined", "delivered": 2, **_UNPAID}),
        "unsigned",
        "record of this owner",
    ),
    Case(
        "a line taken by a stranger",
        "signed participation",
        items(allocation=None, terms=None),
        "unsigned",
        "record of this owner",
    ),
    Case(
        "terms of a stranger's",
        "signed participation",
        items(
            allocation={"state": "offered", "delivered": 2, **_UNPAID},
            terms={"terms": {}, "digest": "", "market_signature": ""},
        ),
        "unsigned",
        "record of this",
    ),
]


def asks(number: int, model: bytes | None = None) -> Bend:
    """Ask about a round."""
    return lambda _: Asked(number, model_of(number) if model is None else model)


def doubles(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}d", *numbers)


NAN, INFINITE = float("nan"), float("inf")
QUERIES = [
    Case("round T", "round-request", asks(ROUNDS), "beyond-rounds", "0 to 3"),
    Case("round T+1", "round-request", asks(ROUNDS + 1), "beyond-rounds", "0 to 3"),
    Case("round -1", "round-request", asks(-1), "beyond-rounds", "0 to 3"),
    Case("round -5", "round-request", asks(-5), "beyond-rounds", "0 to 3"),
    Case("a huge round", "round-request", asks(2**70), "beyond-rounds", "0 to 3"),
    Case("an old round", "round-request", asks(0), "past-round", "is over"),
    Case(
        "an old round, another model", "round-request", asks(0, doubles(9, 9)), "past-round", "over"
    ),
    Case(
        "two models in a round",
        "round-request",
        asks(1, doubles(9, 9)),
        "other-model",
        "another model",
    ),
    Case("a model with NaN", "round-request", asks(2, doubles(0, NAN)), "no-model", "finite"),
    Case(
        "an infinite model", "round-request", asks(2, doubles(-INFINITE, 0)), "no-model", "finite"
    ),
    Case("an empty model", "round-request", asks(2, b""), "no-model", "found 0"),
    Case("a short model", "round-request", asks(2, doubles(1)), "no-model", "found 8"),
    Case("half a number more", "round-request", asks(2, b"\0" * 17), "no-model", "found 17"),
    Case(
        "ten times the model", "round-request", asks(2, b"\0" * 160), "", "more than the 17 bytes"
    ),
    Case(
        "another hash", "headers", items(**{"Fedbourse-Request": "4" * 64}), "round-request", "hash"
    ),
    Case(
        "a hash of no text", "headers", items(**{"Fedbourse-Request": ""}), "round-request", "hash"
    ),
    Case("another round", "headers", items(**{"Fedbourse-Round": "3"}), "round-request", "hash"),
    Case(
        "round text",
        "headers",
        items(**{"Fedbourse-Round": "two"}),
        "round-request",
        "lacks a round",
    ),
    Case("no round", "headers", without("Fedbourse-Round"), "round-request", "lacks a round"),
    Case("no deadline", "headers", without("Fedbourse-Deadline"), "round-request", "lacks a round"),
    Case("no time left", "headers", items(**{"Fedbourse-Left-Ms": "-1"}), "late", "ended before"),
    Case(
        "another deadline", "headers", items(**{"Fedbourse-Deadline": "1"}), "round-request", "hash"
    ),
    Case(
        "no signature", "headers", without("Fedbourse-Signature"), "round-request", "or signature"
    ),
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
    Case(
        "a signature of another task",
        "round-request message",
        items(task="f" * 24),
        "unsigned",
        "not",
    ),
    Case(
        "a signature of another card",
        "round-request message",
        items(card="f" * 64),
        "unsigned",
        "not",
    ),
    Case(
        "a signature of another round", "round-request message", items(round=1), "unsigned", "not"
    ),
    Case(
        "a signature of another model",
        "round-request message",
        items(model_hash="f" * 64),
        "unsigned",
        "not signed with",
    ),
    Case(
        "a signature of another deadline",
        "round-request message",
        items(deadline_ms=1),
        "unsigned",
        "not signed with",
    ),
    Case(
        "a signature of another kind",
        "round-request message",
        items(kind="terms"),
        "unsigned",
        "not",
    ),
    Case(
        "updates forgotten",
        "participation",
        items(allocation={"state": "signed", "delivered": 3, **_UNPAID}),
        "forgotten",
        "old copy",
    ),
    Case(
        "line declined later",
        "participation",
        items(allocation={"state": "declined", "delivered": 2, **_UNPAID}),
        "",
        "declined",
    ),
    Case("line taken away", "participation", items(allocation=None), "", "not chosen"),
]

ESCAPES = Raw(b'{"code": "NotFound", "detail": "\\u001b[2Jgone", "status": 404}', 404)
TRANSPORT = [
    Case("a page", "task", raw("<html>welcome</html>"), "", "an invalid document"),
    Case("cut JSON", "task", raw('{"task": "0123'), "", "an invalid document"),
    Case("deep JSON", "task", raw("[" * 50_000), "", "an invalid document"),
    Case("no UTF-8", "task", lambda _: Raw(b'{"a": "\xff"}'), "", "an invalid document"),
    Case("nothing", "task", raw(""), "document", "not an object"),
    Case("a redirect", "task", lambda _: Raw(b"", 302, {"Location": "http://x/"}), "", "redirect"),
    Case(
        "a redirect of the request",
        "round-request",
        lambda _: Raw(b"", 307, {"Location": "http://x/"}),
        "",
        "redirect",
    ),
    Case("17 MiB", "task", lambda _: Raw(b" " * (17 * 2**20)), "", "more than the"),
    Case(
        "less than it says",
        "task",
        lambda _: Raw(b"{", 200, {"Content-Length": "9"}),
        "",
        "not respond",
    ),
    Case(
        "compressed",
        "task",
        lambda _: Raw(b"x", 200, {"Content-Encoding": "gzip"}),
        "",
        "compressed",
    ),
    Case("never an answer", "task", lambda _: Raw(b"{}", after_s=30.0), "", "not respond"),
    Case("never a question", "round-request", lambda _: Raw(b"", after_s=30.0), "", "not respond"),
    Case("an unknown status", "task", lambda _: Raw(b"x", 299), "", "an invalid document"),
    Case("always busy", "task", lambda _: problem("TooManyRequests", 429), "", "says the market"),
    Case("an unknown reason", "task", lambda _: problem("Bribe", 418), "", "without a known"),
    Case("escape sequences", "task", lambda _: ESCAPES, "", " [2Jgone"),
]


# Receipts: an update has left, so one round is at risk, and never a second.


def other_key(signed: dict[str, Any]) -> dict[str, Any]:
    return {**signed, "market_signature": SigningKey.generate().sign(canonical(signed["receipt"]))}


LESS = PAYMENT // ROUNDS - 1
RECEIPTS = [
    Case("none", "signed receipt", lambda _: None, "receipt"),
    Case("an empty one", "signed receipt", lambda _: {}, "receipt"),
    Case("a list", "signed receipt", lambda _: [1], "receipt"),
    Case("text", "signed receipt", lambda _: "paid", "receipt"),
    Case("receipt a list", "signed receipt", items(receipt=[1]), "receipt"),
    Case("unsigned", "signed receipt", items(market_signature=None), "receipt"),
    Case("signed by another", "signed receipt", other_key, "receipt"),
    Case("another round", "receipt", items(round=3), "receipt"),
    Case("another owner", "receipt", items(owner="owner:bob"), "receipt"),
    Case("another task", "receipt", items(task="f" * 24), "receipt"),
    Case("less than due", "receipt", items(earned_micro=LESS), "receipt"),
    Case("nothing earned", "receipt", items(earned_micro=0), "receipt"),
    Case(
        "a count that does not rise",
        "receipt",
        items(delivered=1, earned_micro=PAYMENT // ROUNDS),
        "receipt",
    ),
    Case("no update counted", "receipt", items(delivered=0, earned_micro=0), "receipt"),
    Case("a count beyond all", "receipt", items(delivered=9), "receipt"),
    Case("a count true", "receipt", items(delivered=True), "receipt"),
    Case("a count missing", "receipt", without("delivered"), "receipt"),
    Case("for another update", "receipt", items(previous="5" * 64), "receipt"),
    Case("an item more", "receipt", items(bonus=None), "receipt"),
    Case("late, it says", "signed receipt", lambda _: problem("Conflict", 409), "unpaid"),
    Case("bad, it says", "signed receipt", lambda _: problem("InvalidInput", 422), "unpaid"),
]


# Before anything is joined.


def other_id(name: str) -> Bend:
    """Give the listed task another id."""
    return lambda page: {**page, "tasks": [{**page["tasks"][0], "task": name}]}


ENROLMENTS = [
    Case("nothing", "enrol", lambda _: None, "document"),
    Case("no key", "enrol", without("market_public_key"), "document"),
    Case("a key that is a number", "enrol", items(market_public_key=7), "document"),
    Case("another key", "enrol", items(market_public_key=SigningKey.generate().public)),
    Case("no owner", "enrol", without("owner"), "document"),
    Case("a weak key", "enrol", items(market_public_key="A" * 43)),
]
CARDS = [
    Case("another hash", "card", items(digest="6" * 64), "card"),
    Case("another card", "card", items(card={**CARD.document, "clip": 5.0}), "card"),
    Case("no card", "card", without("card"), "document"),
    Case("an unknown item", "card", items(card={**CARD.document, "sigma": 1.0})),
    Case("too few records", "card", items(card={**CARD.document, "samples": 10_000}), "card"),
    Case("pages without an end", "tasks", items(tasks=[], next="7" * 24)),
    Case("a task without an id", "tasks", other_id("../x"), "document"),
    Case("tasks that are text", "tasks", items(tasks=["task"])),
    Case("a card of nothing", "card", lambda _: None, "document"),
]
