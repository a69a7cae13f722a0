"""Records for trades with evidence on the command line, and a card that does not take long."""

import json
import re
from pathlib import Path

import numpy as np

from fedbourse.learning.partition import Federation
from fedbourse.learning.records import Records
from fedbourse.tasks.card import TaskCard

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "ask-for-evidence.md"
VALUES = (0.6, 1.0, 1.01, 1.02, 1.03, 1.04)
NAMES = ("junk", "ann", "bob", "cat", "dan", "eve")


def table(count: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows of two classes that a line separates."""
    rng = np.random.default_rng(seed)
    raw = rng.normal(size=(count, 4))
    return raw, raw @ np.array([2.0, -1.0, 0.5, 0.0]) + rng.normal(size=count) > 0


def write_csv(file, count, *, seed):
    raw, labels = table(count, seed=seed)
    lines = [
        f"{','.join(map(repr, row))},{'yes' if late else 'no'}"
        for row, late in zip(raw.tolist(), labels, strict=True)
    ]
    file.write_text("\n".join(["a,b,c,d,late", *lines]) + "\n")


def steps(block: int) -> list[list[str]]:
    """Return the commands of a block of the how-to."""
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [line.removeprefix("$ fedbourse ").split() for line in blocks[block].splitlines()]


def quicken(card, *, rounds):
    """Change what makes a card slow."""
    document = json.loads(card.read_text())
    document |= {"rounds": rounds, "samples": 200, "reward": 10.0}
    document["deadlines"] |= {"review_s": 0}
    card.write_text(json.dumps(document))
    return TaskCard.of(document)


def gradient_of(card, *, seed):
    """Return the mean gradient of an owner's records as a function of the model."""
    raw, labels = table(200, seed=seed)
    columns = card.layout.columns
    scaled = (raw - [each.shift for each in columns]) / [each.scale for each in columns]
    late = float(card.layout.classes.index("yes"))
    features = np.column_stack([scaled, np.ones(len(raw))])
    records = Records(features, np.where(labels, late, 1 - late), 2)
    one = Federation(records, np.array([0, len(records)]))
    return lambda model: card.build().clipped_means(model, one, clip=card.clip)[0]
