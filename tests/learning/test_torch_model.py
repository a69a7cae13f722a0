"""Any torch module gives the clipped means that the closed form gives for the same network."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from fedbourse.errors import InvalidInput
from fedbourse.learning.models import model_named
from fedbourse.learning.partition import Federation
from fedbourse.learning.records import Records
from fedbourse.learning.torch_model import TorchModel
from learning.federations import extreme, federation, squared_norm


class Network(torch.nn.Module):
    """The network of ``hidden:UNITS``, whose input holds the constant feature already."""

    def __init__(self, features: int, classes: int, units: int) -> None:
        super().__init__()
        self.first = torch.nn.Linear(features, units, bias=False)
        self.last = torch.nn.Linear(units + 1, classes, bias=False)

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        return self.last(torch.cat([hidden, torch.ones_like(hidden[:, :1])], dim=1))


@pytest.mark.parametrize("clip", [0.05, 1.0, 100.0])
@pytest.mark.parametrize("at_once", [1, 4, 256])
def test_a_network_has_the_same_clipped_means_either_way(clip, at_once) -> None:
    owners = federation(classes=3)
    ours = model_named("hidden:5", features=4, classes=3)
    theirs = TorchModel(Network(4, 3, 5), classes=3, at_once=at_once)
    assert theirs.dimension == ours.dimension
    parameters = np.random.default_rng(0).standard_normal(ours.dimension)
    found = [m.clipped_means(parameters, owners, clip=clip) for m in (ours, theirs)]
    assert np.allclose(*found, rtol=1e-12, atol=1e-14)
    for measure in ("loss", "accuracy"):
        values = [getattr(m, measure)(parameters, owners.records) for m in (ours, theirs)]
        assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_numbers_are_regressed_on() -> None:
    owners = federation(classes=0)
    ours = model_named("least-squares", features=4, classes=0)
    theirs = TorchModel(torch.nn.Linear(4, 1, bias=False), classes=0)
    parameters = np.array([0.3, -1.0, 2.0, 0.1])
    for name in ("loss", "accuracy"):
        values = [getattr(m, name)(parameters, owners.records) for m in (ours, theirs)]
        assert values[0] == pytest.approx(values[1])
    found = [m.clipped_means(parameters, owners, clip=0.7) for m in (ours, theirs)]
    assert np.allclose(*found, rtol=1e-12, atol=1e-14)


def test_a_convolution_keeps_within_its_sensitivity() -> None:
    module = torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 3, 3)),
        torch.nn.Conv2d(1, 2, 2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 2),
    )
    model = TorchModel(module, classes=2)
    one = federation(owners=1, samples=6, features=9, seed=1, scale=50)
    features = one.records.features.copy()
    features[2, :-1] *= -30
    other = Federation(Records(features, one.records.labels, 2), one.offsets)
    start = model.start(seed=0)
    here, there = (model.clipped_means(start, f, clip=0.5) for f in (one, other))
    assert 0 < np.linalg.norm(here - there) <= 2 * 0.5 / 6 * (1 + 1e-9)


def test_one_record_without_a_finite_gradient_counts_as_zero() -> None:
    class Root(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, 2, bias=False)

        def forward(self, x):
            return self.linear(torch.sqrt(x))  # no number for a negative feature

    good = Records(np.array([[1.0, 1.0], [4.0, 1.0]]), np.array([0.0, 1.0]), 2)
    bad = Records(np.array([[1.0, 1.0], [-4.0, 1.0]]), np.array([0.0, 1.0]), 2)
    model = TorchModel(Root(), classes=2)
    start = model.start(seed=0)
    alone, both, spoilt = (
        model.clipped_means(start, Federation(r, np.array([0, len(r)])), clip=1.0)
        for r in (good.take(np.array([0])), good, bad)
    )
    assert np.isfinite(both).all()
    assert np.allclose(spoilt, alone / 2)


def test_layers_that_mix_records_are_refused() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    with pytest.raises(InvalidInput, match="BatchNorm1d mixes the records of a batch"):
        TorchModel(module, classes=2)
    TorchModel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)), classes=2)


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must have parameters"):
        TorchModel(torch.nn.Flatten(), classes=2)


@pytest.mark.parametrize("clip", [1e-6, 1.0, 1e6, 4.4e-18, 1e-100])
@pytest.mark.parametrize("size", [-1000, -500, 0, 500, 980, 1010, 1023])
def test_no_finite_input_makes_a_clipped_gradient_longer_than_is_charged(clip, size) -> None:
    rng = np.random.default_rng(abs(size))
    model = TorchModel(torch.nn.Linear(3, 1, bias=False), classes=0)
    bound = (Fraction(clip) * (1 + Fraction(model.dimension + 8, 2**53))) ** 2
    for k in range(60):
        features = extreme(rng, (1, 3), [0, size][k % 2])
        features[:, -1] = 1.0
        one = Federation(Records(features, extreme(rng, (1,), size), 0), np.array([0, 1]))
        mean = model.clipped_means(extreme(rng, (3,), size * (k % 3) // 2), one, clip=clip)
        assert squared_norm(mean[0]) <= bound
