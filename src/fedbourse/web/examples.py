"""Examples of items in the API's document, by name.

``Record.item`` takes precedence over ``item``; what is not here is null.
"""

from __future__ import annotations

from typing import Any

from fedbourse.market import monitoring
from fedbourse.web.bodies import HASH, KEY, MS, SIGNATURE, TASK

_DAY_MS = 86_400_000
_FUND = {"account": "fund", "pays_to": "the data protection charity of the town"}
_HASHES = ("card", "digest", "hash", "last_hash", "leaf", "offer", "previous", "root")
_KEYS = ("market_public_key", "new", "old", "public_key")
_SIGNATURES = ("market_signature", "new_signature", "old_signature", "proof", "signature")
_NONE = ("declined", "held_micro", "left", "offered", "refunded", "released", "repeats")
_ONE = ("delivered", "attempts", "missed", "restarts", "sequence", "struck_out")
EXAMPLES: dict[str, Any] = {
    **dict.fromkeys(_HASHES, HASH),
    **dict.fromkeys(_KEYS, KEY),
    **dict.fromkeys((*_SIGNATURES, "state_signature"), SIGNATURE),
    **dict.fromkeys(("at_ms", "claimed_ms", "created_ms", "TokenEnded.revoked_ms"), MS),
    **dict.fromkeys(("amount", "amount_micro", "balance_micro"), 12_500_000),
    **dict.fromkeys(("of", "task"), TASK),
    **dict.fromkeys(("buyer", "party", "credit"), "buyer:acme"),
    **dict.fromkeys(("owner", "Me.party"), "owner:ann"),
    **dict.fromkeys(("Payout.id", "WithdrawalDone.id"), "01a3185c50005b4a3f2e9e8b"),
    **dict.fromkeys((*_NONE, "position", "round", "WithdrawalDone.balance_micro"), 0),
    **dict.fromkeys(_ONE, 1),
    **dict.fromkeys(("updates", "rounds"), 100),
    **dict.fromkeys(("owners", "signed"), 22),
    **dict.fromkeys(("interested", "WhatIfDocument.owners"), 24),
    **dict.fromkeys(("fund", "FundFacts.balance_micro"), 5_000),
    **dict.fromkeys(("held", "reward_micro"), 10_000_000),
    **_FUND,
    # Tasks
    "data": "flights of one airline",
    "deadline_ms": MS + 3_600_000,
    "events": 6,
    "goal": "will a flight arrive late?",
    "refused_updates": {"late": 1},
    "rounds_closed": [],
    "state": "announced",
    "tick": 3,
    "tick_ends_ms": MS + 60_000,
    "total_budget": 1.5,
    "converged": True,
    "regret_bound": 1e-9,
    "Settlement.tick": 5,
    "Settlement.total_budget": 1.49,
    "earned": 95_000,
    "escrow": 9_900_000,
    "length": 6,
    "Event.kind": "opened",
    "Event.body": {
        "deadline_ms": MS + _DAY_MS,
        "reserved_micro": 10_000_000,
        "fund": _FUND,
        "opening": 0,
        "previous_opening": "",
        "state": "open",
    },
    # What-ifs
    "accuracy": [0.8613, 0.8971],
    "basis": "assumed",
    "best_reward": 1.32,
    "best_utility": 16.31,
    "model": "precision",
    "participants": 7,
    "rewards": [1.0, 2.0],
    "total_budgets": [0.41, 0.82],
    "utility": [16.226, 15.942],
    "why": "24 owners with values spread evenly over 1 to 5: 3 of 24 reported theirs, 5 are needed",
    # Owners and devices
    "budget": 0.0625,
    "clip": 1.0,
    "device": "21fe31dfa154a261",
    "dimension": 116,
    "earned_micro": 4_166,
    "noise_scale": 0.06,
    "path": [HASH],
    "payment_micro": 416_667,
    "reason": "left",
    "salt": "9f86d081884c7d659a2feaa0c55ad015",
    "samples": 1000,
    "unearned": "fund",
    "vesting": "by-round",
    "Allocation.state": "signed",
    "Participation.exit": None,
    "Participation.sequence": 8,
    "OwnerRecords.exit": None,
    "agreement": 1.25,
    "flags": [],
    "refused": {"late": 1},
    "squares": 11640.5,
    "squares_low": 10894.2,
    "squares_high": 16120.9,
    "MonitoringPage.note": monitoring.NOTE,
    # Accounts and tokens
    "changed_ms": MS + 250,
    "claimed_before": False,
    "destination": "IBAN DE02 1203 0000 0000 2020 51",
    "leaving_micro": 2_000_000,
    "memo": "deposit bank-0017",
    "note": "",
    "reference": "bank-0017",
    "debit": "outside",
    "Entry.id": "deposit/bank-0017",
    "Entry.sequence": 7,
    "Payout.state": "sent",
    "WithdrawalDone.state": "requested",
    "id": "01a3185c50000a1b2c3d",
    "scopes": ["buyer"],
    "token": "fbt_" + "x" * 43,
    "EnrolmentTokenMade.expires_ms": MS + _DAY_MS,
    "EnrolmentTokenMade.id": "5e884898da28047151d0e56f",
    "EnrolmentTokenMade.token": "fbe_" + "x" * 43,
    "Me.scopes": ["owner"],
    # The market
    "update_bytes_max": 8_004_096,
    "json_bytes_max": 1_048_576,
    "name": "fedbourse",
    "version": "0.4.0",
}
