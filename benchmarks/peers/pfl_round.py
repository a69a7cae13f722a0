"""A round of pfl's own private federated averaging: one local step, each owner's update clipped,
noise on their sum.

pfl keeps updates in singles, so all is in singles.
"""

from __future__ import annotations

import logging
import warnings
from importlib.metadata import version

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism

from protocol import CLIP, ROUNDS, STEP_SIZE, arguments, noise_scale, records, serve


class Logistic(torch.nn.Module):
    """The same logistic regression."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(features, 1, bias=False)
        torch.nn.init.zeros_(self.linear.weight)

    def loss(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scores = self.linear(inputs)
        return torch.nn.functional.binary_cross_entropy_with_logits(scores, labels)

    def metrics(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, object]:
        return {}


class Training:
    """pfl's training loop, stopped after every round."""

    def __init__(self, *, owners: int, samples: int, features: int) -> None:
        inputs, labels = (
            torch.from_numpy(array).to(torch.float32)
            for array in records(owners=owners, samples=samples, features=features)
        )
        pairs = zip(inputs.split(samples), labels[:, None].split(samples), strict=True)
        data = {i: PyTorchTensorDataset(pair) for i, pair in enumerate(pairs)}
        sampler = get_user_sampler("minimize_reuse", list(data))
        dataset = FederatedDataset(data.__getitem__, sampler)
        # Our owners each add noise of this scale to their answers; pfl adds once, to the sum.
        noise = noise_scale(samples) * owners**0.5
        mechanism = CentrallyAppliedPrivacyMechanism(
            GaussianMechanism(clipping_bound=CLIP, relative_noise_stddev=noise / CLIP)
        )
        self._backend = SimulatedBackend(dataset, dataset, postprocessors=[mechanism])
        module = Logistic(features)
        central = torch.optim.SGD(module.parameters(), lr=STEP_SIZE)
        self._model = PyTorchModel(module, torch.optim.SGD, central)
        self._algorithm = FederatedAveraging()
        self._owners, self._rounds = owners, 0
        self._local = NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=1.0, local_batch_size=None
        )

    def round(self) -> None:
        self._rounds += 1
        parameters = NNAlgorithmParams(
            central_num_iterations=self._rounds,  # it counts on from where it stopped
            evaluation_frequency=ROUNDS,
            train_cohort_size=self._owners,
            val_cohort_size=None,
        )
        self._algorithm.run(
            parameters, self._backend, self._model, self._local, send_metrics_to_platform=False
        )


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable()
    options = arguments(__doc__, "single")
    torch.set_num_threads(options.threads)
    training = Training(owners=options.owners, samples=options.samples, features=options.features)
    training.round()  # pfl evaluates in its first round
    serve(training.round, {"version": f"pfl {version('pfl')}, PyTorch {torch.__version__}"})


if __name__ == "__main__":
    main()
