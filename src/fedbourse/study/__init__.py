"""Studies: what the game gives in numbers and pictures, and whether claims about it hold."""
