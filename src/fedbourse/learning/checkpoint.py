"""A training run on disk, so that it goes on exactly where it stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from fedbourse.errors import CannotWrite, InvalidFile
from fedbourse.learning.rounds import RoundResult, Run
from fedbourse.units import whole_number


class Checkpoint:
    """One file that holds a run; written whole or not at all."""

    def __init__(self, file: Path, recipe: Mapping[str, object], *, every: int = 1) -> None:
        """Keep a run of this recipe (whatever decides its result) every so many rounds.

        Devices keep only their last update, so a run with real ones must be kept every round; a
        simulation can be repeated from anywhere.
        """
        self._file = file
        self._recipe = json.dumps(dict(recipe), sort_keys=True)
        self._every = whole_number("every", every, at_least=1)

    def load(self) -> Run | None:
        """Return the run so far, or None where there is none; refuse one of another recipe."""
        try:
            # NumPy leaves a file open that is no archive; this closes it whatever happens.
            with self._file.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                recipe = str(stored["recipe"])
                rounds = tuple(RoundResult(**row) for row in json.loads(str(stored["rounds"])))
                run = Run(stored["parameters"], stored["delivered"], rounds)
        except FileNotFoundError:
            return None
        except Exception as error:  # a damaged archive fails in every way that there is
            raise InvalidFile(f"{self._file} is not a checkpoint, or is damaged: {error}") from None
        if recipe != self._recipe:
            raise InvalidFile(
                f"{self._file} holds another training, {recipe}; move it away to start "
                f"{self._recipe}"
            )
        return run

    def save(self, run: Run, *, last: bool = False) -> None:
        """Write the run, if its turn has come; it is on the disk when this returns."""
        if not last and len(run.rounds) % self._every:
            return
        fresh = self._file.with_name(self._file.name + ".new")
        try:
            with fresh.open("wb") as file:
                np.savez(
                    file,
                    recipe=self._recipe,
                    rounds=json.dumps([asdict(row) for row in run.rounds]),
                    parameters=run.parameters,
                    delivered=run.delivered,
                )
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._file)
        except OSError as error:
            raise CannotWrite(f"{self._file}: {error.strerror}") from None
