"""How documents are written and read: canonical and strict JSON, plain text."""
