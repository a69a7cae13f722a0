"""Statements kept as SQL files beside each version: history, exactly as it was run."""

from __future__ import annotations

from importlib import resources


def statements(version: str, dialect: str) -> list[str]:
    """Return the statements of a version; in the file an empty line parts them."""
    file = resources.files(__package__).joinpath("versions", f"{version}.{dialect}.sql")
    return [part.strip() for part in file.read_text("utf-8").split("\n\n") if part.strip()]
