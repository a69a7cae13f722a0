"""A round of private training as a loop over owners with Opacus: clip, noise, average.

Modes: each record's gradient written down (Opacus' usual way) in doubles or singles, or its ghost
clipping in doubles.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import opacus
import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

from protocol import CLIP, STEP_SIZE, arguments, noise_scale, records, serve

if TYPE_CHECKING:
    from collections.abc import Callable

Parts = list[tuple[torch.Tensor, torch.Tensor]]


class Training:
    """One model and one optimizer for all owners, which is the cheapest that Opacus allows."""

    def __init__(self, parts: Parts, *, ghost: bool) -> None:
        samples, features = parts[0][0].shape
        self._parts = parts
        linear = torch.nn.Linear(features, 1, bias=False, dtype=parts[0][0].dtype)
        torch.nn.init.zeros_(linear.weight)
        self.weight = linear.weight
        loss = torch.nn.BCEWithLogitsLoss()
        kind = DPOptimizerFastGradientClipping if ghost else DPOptimizer
        self.optimizer = kind(
            torch.optim.SGD(linear.parameters(), lr=STEP_SIZE),
            noise_multiplier=noise_scale(samples) * samples / CLIP,
            max_grad_norm=CLIP,
            expected_batch_size=samples,
        )
        self._module: torch.nn.Module
        self._loss: Callable[..., torch.Tensor]
        if ghost:
            self._module = GradSampleModuleFastGradientClipping(
                linear, max_grad_norm=CLIP, use_ghost_clipping=True
            )
            self._loss = DPLossFastGradientClipping(self._module, self.optimizer, loss)
        else:
            self._module, self._loss = GradSampleModule(linear), loss

    def mean(self) -> torch.Tensor:
        """Return the mean of all owners' answers."""
        total = torch.zeros_like(self.weight)
        for inputs, labels in self._parts:
            self.optimizer.zero_grad()
            self._loss(self._module(inputs)[:, 0], labels).backward()
            self.optimizer.pre_step()  # clips, adds noise and scales; leaves the model alone
            total += self.weight.grad
        return total / len(self._parts)

    def round(self) -> None:
        mean = self.mean()
        with torch.no_grad():
            self.weight -= STEP_SIZE * mean

    def norm_without_noise(self) -> float:
        multiplier = self.optimizer.noise_multiplier
        self.optimizer.noise_multiplier = 0.0
        norm = float(self.mean().norm())
        self.optimizer.noise_multiplier = multiplier
        return norm


def main() -> None:
    warnings.simplefilter("ignore")
    options = arguments(__doc__, "double", "single", "ghost")
    torch.set_num_threads(options.threads)
    inputs, labels = (
        torch.from_numpy(array).to(torch.float32 if options.mode == "single" else torch.float64)
        for array in records(
            owners=options.owners, samples=options.samples, features=options.features
        )
    )
    parts = list(zip(inputs.split(options.samples), labels.split(options.samples), strict=True))
    training = Training(parts, ghost=options.mode == "ghost")
    version = f"Opacus {opacus.__version__}, PyTorch {torch.__version__}"
    serve(training.round, {"version": version, "norm": training.norm_without_noise()})


if __name__ == "__main__":
    main()
