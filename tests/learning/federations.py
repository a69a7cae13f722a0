"""Small federations for tests, and a slow, plain reference for every gradient."""

from fractions import Fraction

import numpy as np
from scipy.special import expit, softmax

from fedbourse.learning.partition import Federation
from fedbourse.learning.records import Records


def federation(*, owners=3, samples=7, features=4, classes=2, seed=0, scale=1.0) -> Federation:
    rng = np.random.default_rng(seed)
    rows = owners * samples
    table = rng.standard_normal((rows, features)) * scale
    table[:, -1] = 1.0
    labels = rng.integers(classes, size=rows) if classes else rng.standard_normal(rows)
    records = Records(table, labels.astype(float), classes)
    return Federation(records, np.arange(owners + 1) * samples)


def record_loss(name: str, parameters, x, y, classes: int) -> float:
    """Return one record's loss, written as a textbook has it."""
    if name == "logistic":
        p = expit(x @ parameters)
        return -np.log(p if y == 1 else 1 - p)
    if name == "least-squares":
        target = 2 * y - 1 if classes else y
        return 0.5 * (x @ parameters - target) ** 2
    if name == "softmax":
        return -np.log(softmax(parameters.reshape(classes, -1) @ x)[int(y)])
    units = int(name.partition(":")[2])
    first = parameters[: units * len(x)].reshape(units, len(x))
    hidden = np.append(np.tanh(first @ x), 1.0)
    return -np.log(softmax(parameters[units * len(x) :].reshape(classes, -1) @ hidden)[int(y)])


def numeric_gradient(name: str, parameters, x, y, classes: int):
    """Return one record's gradient by central differences."""
    gradient = np.empty(len(parameters))
    for k in range(len(parameters)):
        step = np.zeros(len(parameters))
        step[k] = 1e-6
        up, down = (record_loss(name, parameters + s, x, y, classes) for s in (step, -step))
        gradient[k] = (up - down) / 2e-6
    return gradient


def plain_clipped_mean(name: str, parameters, records: Records, clip: float):
    """Return the mean of clipped gradients, one record after another."""
    total = np.zeros(len(parameters))
    for x, y in zip(records.features, records.labels, strict=True):
        gradient = numeric_gradient(name, parameters, x, y, records.classes)
        total += gradient * min(1.0, clip / np.linalg.norm(gradient))
    return total / len(records)


def extreme(rng, shape: tuple[int, ...], exponent: int):
    """Return finite numbers of about this power of two, some of them far smaller."""
    spread = rng.integers(0, rng.choice([2, 20, 2000]), shape)
    numbers = rng.uniform(-1, 1, shape)
    return np.ldexp(numbers, np.maximum(exponent - spread, -1080))


def squared_norm(vector) -> Fraction:
    """Return the square of a norm, exactly."""
    return sum((Fraction(x) ** 2 for x in vector.tolist()), Fraction(0))
