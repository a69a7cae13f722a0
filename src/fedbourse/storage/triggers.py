"""Triggers: what the database itself refuses, whoever writes to it, and how it moves balances.

SQLite has triggers for each row only. On PostgreSQL balances move once for each statement, since
a row that is updated a hundred thousand times in one transaction slows down with each update.
"""

from __future__ import annotations

from dataclasses import dataclass

GUARD_STATE = "FB001"
"""The SQLSTATE of a trigger's refusal on PostgreSQL."""


@dataclass(frozen=True)
class Trigger:
    """A trigger; on PostgreSQL its function has the same name."""

    name: str
    table: str
    when: str
    body: str


_IMMUTABLE = {
    "transfers": "a transfer is never changed",
    "events": "an event is never changed",
    "tasks": "a task's card, buyer and time of making are never changed",
    "payouts": "whose a pay-out is, how much, where to and when is never changed",
    "payout_steps": "a state that a pay-out had is never changed",
}
_GAP = "an event must follow the one before it"

_FOLLOWS = """SELECT 1 FROM events
  WHERE task = NEW.task AND sequence = NEW.sequence - 1 AND hash = NEW.previous"""

_MOVE_SQLITE = """\
  INSERT INTO accounts (id, balance) VALUES (NEW.debit, 0) ON CONFLICT (id) DO NOTHING;
  INSERT INTO accounts (id, balance) VALUES (NEW.credit, 0) ON CONFLICT (id) DO NOTHING;
  UPDATE accounts SET balance = balance - NEW.amount WHERE id = NEW.debit;
  UPDATE accounts SET balance = balance + NEW.amount WHERE id = NEW.credit;"""

_MOVE_POSTGRESQL = """\
BEGIN
  INSERT INTO accounts (id, balance)
    SELECT debit, 0 FROM posted UNION SELECT credit, 0 FROM posted ORDER BY 1
    ON CONFLICT (id) DO NOTHING;
  UPDATE accounts SET balance = balance + moved.amount FROM (
    SELECT id, sum(amount) AS amount FROM (
      SELECT debit AS id, -amount AS amount FROM posted
      UNION ALL SELECT credit, amount FROM posted
    ) AS each_side GROUP BY id
  ) AS moved WHERE accounts.id = moved.id;
  RETURN NULL;
END"""


def _refusal_sqlite(sentence: str) -> str:
    return f"  SELECT RAISE(ABORT, '{sentence.replace(chr(39), chr(39) * 2)}');"


def _refusal_postgresql(sentence: str, condition: str = "") -> str:
    sentence = sentence.replace("'", "''")
    refuse = f"RAISE EXCEPTION USING MESSAGE = '{sentence}', ERRCODE = '{GUARD_STATE}';"
    if not condition:
        return f"BEGIN\n  {refuse}\nEND"
    return f"BEGIN\n  IF {condition} THEN\n    {refuse}\n  END IF;\n  RETURN NEW;\nEND"


_FIXED = {
    "tasks": ("id", "buyer", "card", "created_ms", "words", "promised"),
    "payouts": ("id", "party", "amount", "destination", "at_ms"),
}
"""The immutable columns of tables in which others change."""


def _changed(table: str, differs: str) -> str:
    return " OR ".join(f"NEW.{column} {differs} OLD.{column}" for column in _FIXED.get(table, ()))


def _sqlite() -> list[Trigger]:
    exists = {
        "transfers": "id = NEW.id OR sequence = NEW.sequence",
        "events": "task = NEW.task AND sequence = NEW.sequence",
        "tasks": "id = NEW.id",
        "payouts": "id = NEW.id",
        "payout_steps": "payout = NEW.payout AND number = NEW.number",
    }
    result = [
        Trigger("transfers_move", "transfers", "AFTER INSERT ON transfers", _MOVE_SQLITE),
        Trigger(
            "events_follow",
            "events",
            f"BEFORE INSERT ON events WHEN NEW.sequence > 0 AND NOT EXISTS ({_FOLLOWS})",
            _refusal_sqlite(_GAP),
        ),
    ]
    for table, sentence in _IMMUTABLE.items():
        refusal = _refusal_sqlite(sentence)
        changed = _changed(table, "IS NOT")
        update = f"BEFORE UPDATE ON {table}" + (f" WHEN {changed}" if changed else "")
        # INSERT OR REPLACE deletes the old row without running the trigger on DELETE.
        replace = f"BEFORE INSERT ON {table} WHEN EXISTS (SELECT 1 FROM {table}"
        result += [
            Trigger(f"{table}_no_update", table, update, refusal),
            Trigger(f"{table}_no_delete", table, f"BEFORE DELETE ON {table}", refusal),
            Trigger(f"{table}_no_replace", table, f"{replace} WHERE {exists[table]})", refusal),
        ]
    return result


def _postgresql() -> list[Trigger]:
    row, statement = "FOR EACH ROW", "FOR EACH STATEMENT"
    result = [
        Trigger(
            "transfers_move",
            "transfers",
            f"AFTER INSERT ON transfers REFERENCING NEW TABLE AS posted {statement}",
            _MOVE_POSTGRESQL,
        ),
        Trigger(
            "events_follow",
            "events",
            f"BEFORE INSERT ON events {row}",
            _refusal_postgresql(_GAP, f"NEW.sequence > 0 AND NOT EXISTS ({_FOLLOWS})"),
        ),
    ]
    for table, sentence in _IMMUTABLE.items():
        refusal = _refusal_postgresql(sentence)
        update = _refusal_postgresql(sentence, _changed(table, "IS DISTINCT FROM"))
        result += [
            Trigger(f"{table}_no_update", table, f"BEFORE UPDATE ON {table} {row}", update),
            Trigger(f"{table}_no_delete", table, f"BEFORE DELETE ON {table} {row}", refusal),
            Trigger(
                f"{table}_no_truncate", table, f"BEFORE TRUNCATE ON {table} {statement}", refusal
            ),
        ]
    return result


def triggers(dialect: str) -> list[Trigger]:
    """Return every trigger of this kind of database."""
    return _sqlite() if dialect == "sqlite" else _postgresql()


def create_statements(trigger: Trigger, dialect: str) -> list[str]:
    """Return the SQL that creates a trigger."""
    if dialect == "sqlite":
        return [f"CREATE TRIGGER {trigger.name}\n{trigger.when}\nBEGIN\n{trigger.body}\nEND"]
    return [
        f"CREATE FUNCTION {trigger.name}() RETURNS trigger LANGUAGE plpgsql AS $$\n"
        f"{trigger.body}\n$$",
        f"CREATE TRIGGER {trigger.name}\n{trigger.when} EXECUTE FUNCTION {trigger.name}()",
    ]
