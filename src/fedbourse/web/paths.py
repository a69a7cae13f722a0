"""Path and query parameters that routes share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

TASK = "^[0-9a-f]{24}$"
_PARTY = "(operator|buyer|owner|auditor):[a-z0-9][a-z0-9._-]{0,63}"

FORMS = {
    "task": "a task's id has 24 hexadecimal digits, such as 018f0c3e9a5b7d2c4e6f8a1b",
    "account": "an account is a party such as buyer:acme, escrow:TASK, fund, payouts or outside",
    "token": "a token's id has up to 64 letters, digits and dashes",
    "payout": "a pay-out's id has 24 hexadecimal digits, such as 01a3185c50005b4a3f2e9e8b",
}
"""What the parts of addresses look like, for error sentences."""

TaskId = Annotated[
    str,
    Path(pattern=TASK, description="A task's id.", examples=["018f0c3e9a5b7d2c4e6f8a1b"]),
]
RoundNumber = Annotated[int, Path(ge=0, le=1_000_000, description="A round, counting from 0.")]
Account = Annotated[
    str,
    Path(
        pattern=f"^({_PARTY}|escrow:[0-9a-f]{{24}}|fund|payouts|outside)$",
        description="A party, escrow:TASK, or fund.",
        examples=["buyer:acme"],
    ),
]
TokenId = Annotated[
    str,
    Path(
        pattern="^[A-Za-z0-9-]{1,64}$",
        description="A token's id, never the token itself.",
        examples=["01a3185c50000a1b2c3d"],
    ),
]
PayoutId = Annotated[
    str,
    Path(pattern=TASK, description="A pay-out's id.", examples=["01a3185c50005b4a3f2e9e8b"]),
]
AfterPayout = Annotated[
    str, Query(pattern=f"^$|{TASK}", description="Only pay-outs newer than this one.")
]
BeforePayout = Annotated[
    str | None, Query(pattern=TASK, description="Only pay-outs older than this one.")
]
Challenge = Annotated[
    str,
    Query(
        pattern="^([0-9a-f]{32})?$",
        description="32 hexadecimal digits that nobody could foresee.",
        examples=["9f86d081884c7d659a2feaa0c55ad015"],
    ),
]
Rewards = Annotated[
    str,
    Query(
        max_length=6000,
        description="Rewards in credits: at most 200 numbers above 0, separated by commas.",
        examples=["1,2,5,10"],
    ),
]
OwnersAssumed = Annotated[
    int | None,
    Query(
        ge=2,
        le=1_000_000,
        description="As if so many were interested, with values as the card assumes them.",
    ),
]
Last = Annotated[bool, Query(description="Whether the last token of an operator may end, too.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]
Before = Annotated[str | None, Query(pattern=TASK, description="Only tasks older than this one.")]
Wait = Annotated[
    float, Query(ge=0, le=30, description="How many seconds to wait for something new at most.")
]
SeenEvents = Annotated[
    int, Query(ge=0, le=2**53 - 1, description="How many of the task's events were seen.")
]
AfterRound = Annotated[
    int, Query(ge=-1, le=1_000_000, description="Only a round after this one; -1 for any.")
]
AfterEvent = Annotated[
    int, Query(ge=-1, le=2**53 - 1, description="Only events after this sequence number.")
]
AfterOpening = Annotated[
    int, Query(ge=-1, le=2**53 - 1, description="Only tasks opened after this number.")
]
AfterEntry = Annotated[
    int, Query(ge=0, le=2**53 - 1, description="Only transfers after this sequence number.")
]
AfterName = Annotated[
    str, Query(pattern="^[!-~]{0,100}$", description="Only what comes after this name or id.")
]
