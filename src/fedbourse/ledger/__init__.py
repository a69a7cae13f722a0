"""Money: double entry, whole micro-credits, append-only. It knows accounts, not tasks."""

from fedbourse.ledger.book import OUTSIDE, Book, Transfer

__all__ = ["OUTSIDE", "Book", "Transfer"]
