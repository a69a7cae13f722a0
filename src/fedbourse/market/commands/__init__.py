"""What callers may do: each command in one transaction."""
