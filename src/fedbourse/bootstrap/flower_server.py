"""The ServerApp of a Flower federation: the buyer's side of training, with our own checkpoints.

It runs on the SuperLink's machine. What it is to do comes as a job; how it goes is printed, a line
of JSON a round, so that ``flwr log`` and ``fedbourse train`` can follow.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from fedbourse.bootstrap.train_job import PREFIX, Job, completed_line
from fedbourse.errors import FedbourseError, MissingExtra
from fedbourse.learning.engines.flower import FlowerEngine

try:
    from flwr.serverapp import ServerApp
except ImportError:
    raise MissingExtra(
        "the Flower app needs flwr, which is not installed: pip install 'fedbourse[flower]'"
    ) from None

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid

    from fedbourse.learning.engines.engine import Answers
    from fedbourse.learning.rounds import Round

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train as the job says, or go on where an earlier run of it stopped."""
    try:
        _train(grid, Job.read(str(context.run_config.get("job", ""))))
    except FedbourseError as error:
        say({"event": "failed", "sentence": str(error), "kind": type(error).__name__})
        raise


def _train(grid: Grid, job: Job) -> None:
    engine = FlowerEngine(grid, job.seats, round_s=job.round_s, join_s=job.join_s)
    last = time.monotonic()

    def on_round(seen: Round, answers: Answers) -> None:
        nonlocal last
        now = time.monotonic()
        say(job.round_line(seen, answers, seconds=now - last))
        last = now

    say(completed_line(job.train(engine, on_round=on_round)))


def say(line: dict[str, Any]) -> None:
    """Print one line for whoever follows."""
    print(PREFIX + json.dumps(line), flush=True)
