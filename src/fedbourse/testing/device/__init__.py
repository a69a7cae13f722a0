"""A market that is out to cheat devices, and devices to be cheated or killed."""
