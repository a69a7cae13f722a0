"""Private training (Algorithm 1): data, models, rounds, engines."""
