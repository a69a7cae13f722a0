"""What the service answers about itself and the caller."""

from __future__ import annotations

from typing import Any, Literal

from fedbourse.market.parties import Scope  # noqa: TC001 - pydantic reads it
from fedbourse.web.bodies import KEY, MS, SIGNATURE, Body, example


class Health(Body):
    """The service answers, and so does its database."""

    model_config = example(status="ok")
    status: Literal["ok"]


class Limits(Body):
    """What the market reads at most."""

    model_config = example(json_bytes_max=1_048_576, answer_bytes_max=8_004_096)
    json_bytes_max: int
    answer_bytes_max: int


FUND: dict[str, str] = {"account": "fund", "pays_to": "the data protection charity of the town"}


class Fund(Body):
    """Where the pay goes of rounds that were not delivered. No request takes money out of it."""

    model_config = example(**FUND)
    account: str
    pays_to: str
    """Whom it is paid out to, in the operator's words."""


class FundFacts(Fund):
    """The fund, and what it holds."""

    model_config = example(**FUND, balance_micro=5_000)
    balance_micro: int


_ROTATION: dict[str, Any] = {
    "old": KEY,
    "new": KEY,
    "at_ms": MS,
    "old_signature": SIGNATURE,
    "new_signature": SIGNATURE,
}


class RotationDocument(Body):
    """The statement that a key takes the place of another, signed with both."""

    model_config = example(**_ROTATION)
    old: str
    new: str
    at_ms: int
    """From when on the market signs with the new one."""
    old_signature: str
    """With the old key, of the message of kind key-rotation: old, new and at_ms."""
    new_signature: str
    """With the new key, of the same."""


class MarketFacts(Body):
    """What a market says of itself."""

    model_config = example(
        name="fedbourse",
        version="0.4.0",
        public_key=KEY,
        proof=SIGNATURE,
        rotations=[_ROTATION],
        fund={**FUND, "balance_micro": 5_000},
        limits={"json_bytes_max": 1_048_576, "answer_bytes_max": 8_004_096},
    )
    name: str
    version: str
    public_key: str
    """The key that the market signs terms and receipts with; pin it."""
    proof: str | None
    """Its signature of the message of kind market, with the host and the challenge; null where
    there was no challenge, or the market does not go by that name."""
    rotations: list[RotationDocument]
    """How the market came by its key: whoever knows an earlier one follows from there."""
    fund: FundFacts
    limits: Limits


class Me(Body):
    """Who the caller is to the market."""

    model_config = example(party="owner:ann", scopes=["owner"], device="21fe31dfa154a261")
    party: str
    scopes: list[Scope]
    device: str | None
    """The device that signed the request, where one did."""
