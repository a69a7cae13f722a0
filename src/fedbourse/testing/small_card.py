"""The card of a task that is trained in no time, for tests that add what they need."""

from fedbourse.tasks.builder import task_card

SMALL_CARD = task_card(
    goal="Tell two kinds of things apart.",
    data="A record is a thing: two numbers and its kind.",
    reward=3.0,
    scaling="0" * 64,
    features=2,
    step_size=0.5,
    rounds=3,
    samples=100,
).document
