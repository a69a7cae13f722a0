"""What callers send, except the card (see ``cards``): no unknown items, no coercion, no NaN."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from fedbourse.market.parties import Scope

Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256, in hexadecimal.")]
KeyText = Annotated[
    str, Field(pattern="^[A-Za-z0-9_-]{43}$", description="An Ed25519 key, base64url.")
]
SignatureText = Annotated[
    str, Field(pattern="^[A-Za-z0-9_-]{86}$", description="An Ed25519 signature, base64url.")
]
MS = 1_800_000_000_000
HASH = "5f78c33274e43fa9de5659265c1d917e25c03722dcb0b8d27db8d5feaa813953"
TASK = "018f0c3e9a5b7d2c4e6f8a1b"
KEY = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
SIGNATURE = "5VZDAMNgrHKQhuLMgG6CioSHfx645dl02HPgZSJJAVVfuIIVkKM7rMYeOXAc-bRr0lv18FlbviRlUUFDjnoQCw"


class Body(BaseModel):
    """A body of a request or a response."""

    model_config = ConfigDict(
        strict=True, extra="forbid", allow_inf_nan=False, frozen=True, use_attribute_docstrings=True
    )


def example(**items: Any) -> ConfigDict:
    """Return the configuration of a body that shows an example of itself."""
    return ConfigDict(json_schema_extra={"example": dict(items)})


class Nothing(Body):
    """No items."""

    model_config = example()


class Opening(Body):
    """What a buyer confirms when it opens a task."""

    model_config = example(confirm_upfront=False)
    confirm_upfront: bool = False
    """That all of the reward is paid before round 0, whoever then delivers; for upfront cards."""


class Cancellation(Body):
    """Why a task ends before its time."""

    model_config = example(reason="the validation set was wrong")
    reason: str = Field("", max_length=400)


class InterestBody(Body):
    """An owner's interest in a task."""

    model_config = example(value=None, previous=HASH)
    value: float | None = None
    """What a unit of rho is worth to the owner, in credits; null where it is withheld."""
    previous: Hash
    """The card's hash."""


class PlanBody(Body):
    """An owner's reply to a tick."""

    model_config = example(tick=3, budget=0.0625, previous=HASH)
    tick: int = Field(ge=0)
    budget: float = Field(ge=0)
    """rho that the owner would sell at this tick's total budget; 0 for none."""
    previous: Hash
    """The offer's hash."""


class Decision(Body):
    """A device's signature of its terms, or its refusal."""

    model_config = example(accept=True, digest=HASH, signature=SIGNATURE)
    accept: bool
    digest: Hash
    """The hash of the terms."""
    signature: SignatureText | None = None
    """The device's signature of the terms' canonical form; needed to accept."""


class DepositBody(Body):
    """Money that came in from outside."""

    model_config = example(reference="bank-0017")
    reference: str = Field(pattern="^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$")


class WithdrawalBody(Body):
    """A withdrawal from the caller's account."""

    model_config = example(amount_micro=12_500_000, destination="IBAN DE02 1203 0000 0000 2020 51")
    amount_micro: int = Field(ge=1, le=2**53 - 1)
    destination: str = Field(min_length=1, max_length=200)
    party: str | None = None
    """Whose account; the caller's own, which is also the default."""


class PayoutReturn(Body):
    """Why a pay-out is given up."""

    model_config = example(reason="the bank does not know this IBAN")
    reason: str = Field("", max_length=200)


class TokenBody(Body):
    """A token to be made."""

    model_config = example(party="buyer:acme", scopes=["buyer"], days=90)
    party: str = Field(max_length=80)
    scopes: list[Scope] = Field(min_length=1, max_length=4)
    days: float | None = Field(None, gt=0, le=3660)
    """After how many days it ends; null for when it is revoked."""


class EnrolmentTokenBody(Body):
    """A one-time token to be made."""

    model_config = example(owner="owner:ann", hours=24)
    owner: str = Field(max_length=80)
    hours: float = Field(24.0, gt=0, le=24 * 366)


class EnrolmentBody(Body):
    """A device to be enrolled; the request is signed with the key that it brings."""

    model_config = example(token="fbe_" + "x" * 43, public_key=KEY)
    token: str = Field(pattern="^fbe_[A-Za-z0-9_-]{43}$")
    public_key: KeyText
