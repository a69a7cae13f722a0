"""The game of owners who do not fit into memory."""
