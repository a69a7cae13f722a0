"""The buyer's best reward."""
