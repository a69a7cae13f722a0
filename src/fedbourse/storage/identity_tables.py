"""The tables of tokens, devices, keys, nonces, sessions and stored responses."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Index, PrimaryKeyConstraint, Text, text

from fedbourse.storage.columns import Name, names, numbers, optional_numbers, table, texts

tokens = table(
    "tokens",
    Column("id", Name, primary_key=True),
    Column("hash", Name, nullable=False, unique=True),
    *names("party"),
    *texts("scopes"),
    *numbers("created_ms"),
    *optional_numbers("expires_ms", "revoked_ms"),
    rowid=True,
)

enrolments = table(
    "enrolments",
    Column("hash", Name, primary_key=True),
    *names("owner"),
    *numbers("expires_ms"),
    *optional_numbers("used_ms"),
    rowid=True,
)

devices = table(
    "devices",
    Column("id", Name, primary_key=True),
    *names("owner"),
    *texts("public_key"),
    *numbers("enrolled_ms"),
    *optional_numbers("retired_ms"),
    rowid=True,
)
# An owner has one device at a time, also where two enrol at once.
Index(
    "ix_devices_live",
    devices.c.owner,
    unique=True,
    sqlite_where=text("retired_ms IS NULL"),
    postgresql_where=text("retired_ms IS NULL"),
)

# A key has one successor, so that every earlier key leads to the last.
rotations = table(
    "rotations",
    Column("old", Name, primary_key=True),
    Column("new", Name, nullable=False, unique=True),
    *numbers("at_ms"),
    *texts("old_signature", "new_signature"),
    CheckConstraint("old <> new", name="keys"),
    rowid=True,
)

nonces = table(
    "nonces",
    *names("device", "nonce"),
    *numbers("expires_ms"),
    PrimaryKeyConstraint("device", "nonce"),
    Index("ix_nonces_expires_ms", "expires_ms"),
)

# A cookie may have been copied: signing out ends it here too, until it would have expired.
ended_sessions = table(
    "ended_sessions",
    Column("id", Name, primary_key=True),
    *numbers("expires_ms"),
    Index("ix_ended_sessions_expires_ms", "expires_ms"),
)

responses = table(
    "responses",
    *names("caller", "key"),
    *texts("fingerprint"),
    *optional_numbers("status"),
    Column("body", Text),
    *numbers("expires_ms"),
    PrimaryKeyConstraint("caller", "key"),
    Index("ix_responses_expires_ms", "expires_ms"),
    rowid=True,
)
