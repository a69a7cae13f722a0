"""The tables, each for one record of the market; a column has the name and place of its field."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    LargeBinary,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    text,
)

from fedbourse.storage import identity_tables
from fedbourse.storage.columns import (
    Name,
    Number,
    RowNumber,
    names,
    not_negative,
    numbers,
    optional_numbers,
    table,
    task_column,
    texts,
)

# All tables: those of identities too.
metadata = identity_tables.tokens.metadata

tasks = table(
    "tasks",
    Column("id", Name, primary_key=True),
    *names("buyer"),
    *texts("card"),
    *names("state"),
    *numbers("created_ms"),
    *optional_numbers("deadline_ms"),
    *numbers("interested"),
    *optional_numbers("reward"),
    *numbers("tick"),
    *optional_numbers("tick_ends_ms"),
    Column("total_budget", Double),
    *texts("totals"),
    *numbers("first_tick", "asked"),
    *optional_numbers("settled_tick"),
    *texts("offer"),
    *optional_numbers("review_ends_ms", "reference_ends_ms"),
    *numbers("round"),
    *optional_numbers("void_block"),
    *numbers("last_sequence"),
    *texts("last_hash", "state_signature"),
    # From the card, to search and order lists of tasks.
    *texts("words"),
    *optional_numbers("promised"),
    CheckConstraint(
        "state IN ('draft', 'open', 'announced', 'settled', 'training', 'completed', 'cancelled')",
        name="state",
    ),
    not_negative("reward"),
    Index("ix_tasks_state_id", "state", "id"),
    Index("ix_tasks_buyer_id", "buyer", "id"),
)

events = table(
    "events",
    task_column(),
    *numbers("sequence"),
    *texts("kind"),
    *numbers("at_ms"),
    *texts("body", "previous", "hash"),
    PrimaryKeyConstraint("task", "sequence"),
    not_negative("sequence"),
    rowid=True,
)

# The order in which tasks were opened, and the event that opened each: the market's log.
openings = table(
    "openings",
    Column("number", Number, primary_key=True, autoincrement=False),
    *names("task"),
    *numbers("sequence"),
    ForeignKeyConstraint(["task", "sequence"], ["events.task", "events.sequence"]),
    UniqueConstraint("task"),
)

# Rows of one task are stored together in the order of owners, as settlements read them.
interests = table(
    "interests",
    task_column(),
    *names("owner"),
    Column("value", Double),
    *texts("salt", "leaf"),
    *numbers("at_ms"),
    Column("zero_from", Double),
    PrimaryKeyConstraint("task", "owner"),
    Index("ix_interests_owner", "owner"),
)

# Replies to one tick are stored together; those of one owner are found by index.
replies = table(
    "replies",
    task_column(),
    *numbers("tick"),
    *names("owner"),
    Column("budget", Double),
    *texts("salt", "leaf"),
    *numbers("at_ms"),
    PrimaryKeyConstraint("task", "tick", "owner"),
    not_negative("budget"),
    Index("ix_replies_task_owner", "task", "owner"),
)

# An owner who is out may not come back, whatever else is erased.
exits = table(
    "exits",
    task_column(),
    *names("owner"),
    *numbers("tick"),
    *names("reason"),
    *numbers("at_ms"),
    PrimaryKeyConstraint("task", "owner"),
    CheckConstraint("reason IN ('left', 'missed', 'declined', 'unsigned')", name="reason"),
    Index("ix_exits_owner", "owner"),
)

allocations = table(
    "allocations",
    task_column(),
    *names("owner"),
    *numbers("position"),
    Column("budget", Double),
    *numbers("payment"),
    *texts("salt", "leaf"),
    *names("state"),
    Column("signature", Text),
    *numbers("delivered", "earned", "held"),
    PrimaryKeyConstraint("task", "owner"),
    CheckConstraint("state IN ('offered', 'signed', 'declined', 'dismissed')", name="state"),
    CheckConstraint("held >= 0 AND held <= earned", name="held"),
    not_negative("budget"),
    not_negative("payment"),
    not_negative("delivered"),
    Index("ix_allocations_task_state", "task", "state"),
)

# The tree over a task's allocations, above the roots of blocks of them.
nodes = table(
    "nodes",
    task_column(),
    *numbers("height", "position"),
    *texts("hash"),
    PrimaryKeyConstraint("task", "height", "position"),
)

rounds = table(
    "rounds",
    task_column(),
    *numbers("number"),
    Column("model", LargeBinary, nullable=False),
    *texts("model_hash", "request_hash", "previous"),
    *numbers("opened_ms", "deadline_ms"),
    *optional_numbers("closed_ms"),
    *numbers("updates"),
    *texts("signature"),
    PrimaryKeyConstraint("task", "number"),
    not_negative("number"),
    rowid=True,
)

updates = table(
    "updates",
    *names("task"),
    *numbers("round"),
    *names("owner"),
    Column("vector", LargeBinary),
    *texts("hash", "receipt"),
    *numbers("at_ms"),
    PrimaryKeyConstraint("task", "round", "owner"),
    ForeignKeyConstraint(["task", "round"], ["rounds.task", "rounds.number"]),
    Index("ix_updates_task_owner_round", "task", "owner", "round"),
    rowid=True,
)

# One row for each round in which an owner's updates were refused, however many.
refusals = table(
    "refusals",
    *names("task"),
    *numbers("round"),
    *names("owner", "reason"),
    *numbers("at_ms"),
    PrimaryKeyConstraint("task", "round", "owner"),
    ForeignKeyConstraint(["task", "round"], ["rounds.task", "rounds.number"]),
    Index("ix_refusals_task_owner", "task", "owner"),
)

device_statistics = table(
    "device_statistics",
    task_column(),
    *names("owner"),
    *numbers("updates"),
    Column("squares", Double, nullable=False),
    *numbers("compared"),
    Column("agreement", Double, nullable=False),
    *numbers("repeats"),
    *texts("last_vector"),
    PrimaryKeyConstraint("task", "owner"),
    not_negative("updates"),
    not_negative("squares"),
)

# What the card's evidence commits to; shown after the end.
references = table(
    "evidence_references",
    Column("task", Name, ForeignKey("tasks.id"), primary_key=True),
    Column("content", LargeBinary, nullable=False),
)

# Of rounds for which the buyer sent one: what updates are compared with, never changed.
reference_gradients = table(
    "reference_gradients",
    *names("task"),
    *numbers("round"),
    Column("content", LargeBinary, nullable=False),
    PrimaryKeyConstraint("task", "round"),
    ForeignKeyConstraint(["task", "round"], ["rounds.task", "rounds.number"]),
    rowid=True,
)

device_evidence = table(
    "device_evidence",
    task_column(),
    *numbers("block"),
    *names("owner"),
    *texts("document"),
    *optional_numbers("dismissed_round"),
    PrimaryKeyConstraint("task", "block", "owner"),
)

accounts = table(
    "accounts",
    Column("id", Name, primary_key=True),
    *numbers("balance"),
    CheckConstraint("balance >= 0 OR id = 'outside'", name="overdraft"),
    # SQLite turns an integer that grows too large into a float.
    CheckConstraint(
        "balance >= -9223372036854775807 AND balance <= 9223372036854775807", name="range"
    ),
)

transfers = table(
    "transfers",
    Column("sequence", RowNumber, Identity(always=False), primary_key=True),
    Column("id", Name, nullable=False, unique=True),
    *names("debit", "credit"),
    *numbers("amount"),
    *texts("memo"),
    *numbers("at_ms"),
    CheckConstraint("amount > 0", name="amount"),
    CheckConstraint("debit <> credit", name="accounts"),
    Index("ix_transfers_debit_sequence", "debit", "sequence"),
    Index("ix_transfers_credit_sequence", "credit", "sequence"),
    rowid=True,
)

payouts = table(
    "payouts",
    Column("id", Name, primary_key=True),
    *names("party"),
    *numbers("amount"),
    *texts("destination"),
    *numbers("at_ms"),
    *names("state"),
    *numbers("changed_ms"),
    *texts("note"),
    *numbers("steps", "attempts"),
    Column("trying", Boolean, nullable=False),
    *numbers("due_ms"),
    CheckConstraint("amount > 0", name="amount"),
    CheckConstraint(
        "state IN ('requested', 'sent', 'confirmed', 'failed', 'returned')", name="state"
    ),
    Index("ix_payouts_party_id", "party", "id"),
)
# Pay-outs that ended are many, and the queue never reads them. A query uses the index where its
# condition has exactly these words.
PAYOUT_WAITS = text("state IN ('requested', 'failed')")
PAYOUT_IS_OPEN = text("state IN ('requested', 'failed', 'sent')")
for _state, _condition in (("waiting", PAYOUT_WAITS), ("open", PAYOUT_IS_OPEN)):
    Index(
        f"ix_payouts_{_state}",
        payouts.c.id,
        sqlite_where=_condition,
        postgresql_where=_condition,
    )

payout_steps = table(
    "payout_steps",
    Column("payout", Name, ForeignKey("payouts.id"), nullable=False),
    *numbers("number"),
    *names("state"),
    *numbers("at_ms"),
    *texts("note"),
    PrimaryKeyConstraint("payout", "number"),
    not_negative("number"),
)
