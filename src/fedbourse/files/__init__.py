"""Columns of numbers in files: small ones as a whole, and more of them than memory holds."""

from fedbourse.files.owners import owners_in

__all__ = ["owners_in"]
