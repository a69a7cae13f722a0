"""Payment adapters: how money comes into the market and leaves it."""
