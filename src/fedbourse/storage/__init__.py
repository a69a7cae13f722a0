"""The market's records in a database: SQLite or PostgreSQL."""

from fedbourse.storage.sql import SqlStore

__all__ = ["SqlStore"]
