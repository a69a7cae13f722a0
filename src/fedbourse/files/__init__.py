"""Columns of numbers in files: small ones as a whole, and more of them than memory holds."""

import fedbourse.files.values  # noqa: F401 - lets the game read files
from fedbourse.files.owners import owners_in

__all__ = ["owners_in"]
