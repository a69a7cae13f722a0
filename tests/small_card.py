"""The card of a task that is trained in no time, for tests that add what they need."""

SMALL_CARD = {
    "goal": "Tell two kinds of things apart.",
    "data": "A record is a thing: two numbers and its kind.",
    "loss": "logistic",
    "query": "gradient",
    "compensation": "proportional",
    "reward": 3.0,
    "scaling": "0" * 64,
    "model": "logistic",
    "features": 2,
    "classes": 2,
    "dimension": 2,
    "step_size": 0.5,
    "rounds": 3,
    "samples": 100,
    "clip": 1.0,
    "weights": "precision",
    "vesting": "by-round",
}
