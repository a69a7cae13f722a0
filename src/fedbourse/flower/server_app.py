"""The ServerApp of a Flower federation: the buyer's side of training, with our own checkpoints.

It runs on the SuperLink's machine. What it is to do comes as a job; how it goes is printed, a line
of JSON a round, so that ``flwr log`` and ``fedbourse train`` can follow.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fedbourse.errors import FedbourseError, MissingExtra
from fedbourse.flower.job import PREFIX, Job
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

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train as the job says, or go on where an earlier run of it stopped."""
    try:
        job = Job.read(str(context.run_config.get("job", "")))
        engine = FlowerEngine(grid, job.seats, round_s=job.round_s, join_s=job.join_s)
        job.train(engine, on_line=say)
    except FedbourseError as error:
        say({"event": "failed", "sentence": str(error), "kind": type(error).__name__})
        raise


def say(line: dict[str, Any]) -> None:
    """Print one line for whoever follows."""
    print(PREFIX + json.dumps(line), flush=True)
