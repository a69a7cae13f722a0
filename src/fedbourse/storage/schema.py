"""The tables, each for one record of the market; a column has the name and place of its field."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects import postgresql

# Every constraint has a name, so that the check at start can ask for each of them.
metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

# Names are compared by code point: SQLite always does so, PostgreSQL where it is told.
Name = Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
Number = BigInteger()
# SQLite numbers rows by itself only where the type is exactly INTEGER.
RowNumber = BigInteger().with_variant(Integer(), "sqlite")


def _name(name: str) -> Column[str]:
    return Column(name, Name, nullable=False)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def _number(name: str) -> Column[int]:
    return Column(name, Number, nullable=False)


def _maybe_number(name: str) -> Column[int]:
    return Column(name, Number)


def _task() -> Column[str]:
    return Column("task", Name, ForeignKey("tasks.id"), nullable=False)


def _not_negative(column: str) -> CheckConstraint:
    return CheckConstraint(f"{column} >= 0", name=column)


tasks = Table(
    "tasks",
    metadata,
    Column("id", Name, primary_key=True),
    _name("buyer"),
    _text("card"),
    _name("state"),
    _number("created_ms"),
    _maybe_number("deadline_ms"),
    _number("interested"),
    _maybe_number("reward"),
    _number("tick"),
    _maybe_number("tick_ends_ms"),
    Column("total_budget", Double),
    _text("totals"),
    _number("first_tick"),
    _number("asked"),
    _maybe_number("settled_tick"),
    _text("offer"),
    _maybe_number("review_ends_ms"),
    _number("round"),
    _number("last_sequence"),
    _text("last_hash"),
    _text("state_signature"),
    # What lists are searched for and put in order by, out of the card.
    _text("words"),
    _maybe_number("promised"),
    CheckConstraint(
        "state IN ('draft', 'open', 'announced', 'settled', 'training', 'completed', 'cancelled')",
        name="state",
    ),
    _not_negative("reward"),
    Index("ix_tasks_state_id", "state", "id"),
    Index("ix_tasks_buyer_id", "buyer", "id"),
    sqlite_with_rowid=False,
)

events = Table(
    "events",
    metadata,
    _task(),
    _number("sequence"),
    _text("kind"),
    _number("at_ms"),
    _text("body"),
    _text("previous"),
    _text("hash"),
    PrimaryKeyConstraint("task", "sequence"),
    _not_negative("sequence"),
)

# The order in which tasks were opened, and the event that opened each: the market's log.
openings = Table(
    "openings",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=False),
    _name("task"),
    _number("sequence"),
    ForeignKeyConstraint(["task", "sequence"], ["events.task", "events.sequence"]),
    UniqueConstraint("task"),
    sqlite_with_rowid=False,
)

# Rows of one task lie together in the order of owners, since settlements read them so.
interests = Table(
    "interests",
    metadata,
    _task(),
    _name("owner"),
    Column("value", Double),
    _text("salt"),
    _text("leaf"),
    _number("at_ms"),
    Column("zero_from", Double),
    PrimaryKeyConstraint("task", "owner"),
    Index("ix_interests_owner", "owner"),
    sqlite_with_rowid=False,
)

# Replies to one tick lie together; an owner's own are found by index.
replies = Table(
    "replies",
    metadata,
    _task(),
    _number("tick"),
    _name("owner"),
    Column("budget", Double),
    _text("salt"),
    _text("leaf"),
    _number("at_ms"),
    PrimaryKeyConstraint("task", "tick", "owner"),
    _not_negative("budget"),
    Index("ix_replies_task_owner", "task", "owner"),
    sqlite_with_rowid=False,
)

# An owner who is out may not come back, whatever else of it is gone.
exits = Table(
    "exits",
    metadata,
    _task(),
    _name("owner"),
    _number("tick"),
    _name("reason"),
    _number("at_ms"),
    PrimaryKeyConstraint("task", "owner"),
    CheckConstraint("reason IN ('left', 'missed', 'declined', 'unsigned')", name="reason"),
    Index("ix_exits_owner", "owner"),
    sqlite_with_rowid=False,
)

lines = Table(
    "lines",
    metadata,
    _task(),
    _name("owner"),
    _number("position"),
    Column("budget", Double),
    _number("payment"),
    _text("salt"),
    _text("leaf"),
    _name("state"),
    Column("signature", Text),
    _number("answered"),
    _number("earned"),
    _number("held"),
    PrimaryKeyConstraint("task", "owner"),
    CheckConstraint("state IN ('offered', 'signed', 'declined')", name="state"),
    CheckConstraint("held >= 0 AND held <= earned", name="held"),
    _not_negative("budget"),
    _not_negative("payment"),
    _not_negative("answered"),
    sqlite_with_rowid=False,
)

# The tree over a task's lines, from the tops of blocks of lines upwards.
nodes = Table(
    "nodes",
    metadata,
    _task(),
    _number("height"),
    _number("position"),
    _text("hash"),
    PrimaryKeyConstraint("task", "height", "position"),
    sqlite_with_rowid=False,
)

rounds = Table(
    "rounds",
    metadata,
    _task(),
    _number("number"),
    Column("model", LargeBinary, nullable=False),
    _text("model_hash"),
    _text("query"),
    _text("previous"),
    _number("opened_ms"),
    _number("deadline_ms"),
    _maybe_number("closed_ms"),
    _number("answers"),
    _text("signature"),
    PrimaryKeyConstraint("task", "number"),
    _not_negative("number"),
)

answers = Table(
    "answers",
    metadata,
    _name("task"),
    _number("round"),
    _name("owner"),
    Column("vector", LargeBinary),
    _text("hash"),
    _text("receipt"),
    _number("at_ms"),
    PrimaryKeyConstraint("task", "round", "owner"),
    ForeignKeyConstraint(["task", "round"], ["rounds.task", "rounds.number"]),
    Index("ix_answers_task_owner_round", "task", "owner", "round"),
)

# One row for each round that an owner missed by its own doing, however often it tried.
refusals = Table(
    "refusals",
    metadata,
    _name("task"),
    _number("round"),
    _name("owner"),
    _name("reason"),
    _number("at_ms"),
    PrimaryKeyConstraint("task", "round", "owner"),
    ForeignKeyConstraint(["task", "round"], ["rounds.task", "rounds.number"]),
    Index("ix_refusals_task_owner", "task", "owner"),
    sqlite_with_rowid=False,
)

drifts = Table(
    "drifts",
    metadata,
    _task(),
    _name("owner"),
    _number("answers"),
    Column("squares", Double, nullable=False),
    _number("compared"),
    Column("agreement", Double, nullable=False),
    _number("repeats"),
    _text("last_vector"),
    PrimaryKeyConstraint("task", "owner"),
    _not_negative("answers"),
    _not_negative("squares"),
    sqlite_with_rowid=False,
)

accounts = Table(
    "accounts",
    metadata,
    Column("id", Name, primary_key=True),
    _number("balance"),
    CheckConstraint("balance >= 0 OR id = 'outside'", name="overdraft"),
    # SQLite turns an integer that grows too large into a float.
    CheckConstraint(
        "balance >= -9223372036854775807 AND balance <= 9223372036854775807", name="range"
    ),
    sqlite_with_rowid=False,
)

transfers = Table(
    "transfers",
    metadata,
    Column("sequence", RowNumber, Identity(always=False), primary_key=True),
    Column("id", Name, nullable=False, unique=True),
    _name("source"),
    _name("target"),
    _number("amount"),
    _text("memo"),
    _number("at_ms"),
    CheckConstraint("amount > 0", name="amount"),
    CheckConstraint("source <> target", name="accounts"),
    Index("ix_transfers_source_sequence", "source", "sequence"),
    Index("ix_transfers_target_sequence", "target", "sequence"),
)

payouts = Table(
    "payouts",
    metadata,
    Column("id", Name, primary_key=True),
    _name("party"),
    _number("amount"),
    _text("destination"),
    _number("at_ms"),
    _name("state"),
    _number("changed_ms"),
    _text("note"),
    _number("steps"),
    _number("attempts"),
    Column("trying", Boolean, nullable=False),
    _number("due_ms"),
    CheckConstraint("amount > 0", name="amount"),
    CheckConstraint(
        "state IN ('requested', 'sent', 'confirmed', 'failed', 'returned')", name="state"
    ),
    Index("ix_payouts_party_id", "party", "id"),
    sqlite_with_rowid=False,
)
# Those that ended are many, and the queue never looks at them. Queries that say so in these very
# words find the index.
PAYOUT_WAITS = text("state IN ('requested', 'failed')")
PAYOUT_IS_OPEN = text("state IN ('requested', 'failed', 'sent')")
for _name_of, _those in (("waiting", PAYOUT_WAITS), ("open", PAYOUT_IS_OPEN)):
    Index(f"ix_payouts_{_name_of}", payouts.c.id, sqlite_where=_those, postgresql_where=_those)

payout_steps = Table(
    "payout_steps",
    metadata,
    Column("payout", Name, ForeignKey("payouts.id"), nullable=False),
    _number("number"),
    _name("state"),
    _number("at_ms"),
    _text("note"),
    PrimaryKeyConstraint("payout", "number"),
    _not_negative("number"),
    sqlite_with_rowid=False,
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Name, primary_key=True),
    Column("hash", Name, nullable=False, unique=True),
    _name("party"),
    _text("scopes"),
    _number("created_ms"),
    _maybe_number("expires_ms"),
    _maybe_number("revoked_ms"),
)

enrolments = Table(
    "enrolments",
    metadata,
    Column("hash", Name, primary_key=True),
    _name("owner"),
    _number("expires_ms"),
    _maybe_number("used_ms"),
)

devices = Table(
    "devices",
    metadata,
    Column("id", Name, primary_key=True),
    _name("owner"),
    _text("public_key"),
    _number("enrolled_ms"),
    _maybe_number("retired_ms"),
)
# An owner has one device at a time, whoever enrols at the same moment.
Index(
    "ix_devices_live",
    devices.c.owner,
    unique=True,
    sqlite_where=text("retired_ms IS NULL"),
    postgresql_where=text("retired_ms IS NULL"),
)

# A key has one successor, so that whoever knows one is led to the last.
rotations = Table(
    "rotations",
    metadata,
    Column("old", Name, primary_key=True),
    Column("new", Name, nullable=False, unique=True),
    _number("at_ms"),
    _text("old_signature"),
    _text("new_signature"),
    CheckConstraint("old <> new", name="keys"),
)

nonces = Table(
    "nonces",
    metadata,
    _name("device"),
    _name("nonce"),
    _number("expires_ms"),
    PrimaryKeyConstraint("device", "nonce"),
    Index("ix_nonces_expires_ms", "expires_ms"),
    sqlite_with_rowid=False,
)

# A cookie may have been copied: whoever signs out ends it here too, until it would have expired.
ended_sessions = Table(
    "ended_sessions",
    metadata,
    Column("id", Name, primary_key=True),
    _number("expires_ms"),
    Index("ix_ended_sessions_expires_ms", "expires_ms"),
    sqlite_with_rowid=False,
)

responses = Table(
    "responses",
    metadata,
    _name("caller"),
    _name("key"),
    _text("fingerprint"),
    _maybe_number("status"),
    Column("body", Text),
    _number("expires_ms"),
    PrimaryKeyConstraint("caller", "key"),
    Index("ix_responses_expires_ms", "expires_ms"),
)
