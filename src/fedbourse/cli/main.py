"""The command ``fedbourse``: finds the command asked for, and turns errors into one sentence."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from cyclopts import App, CycloptsError

from fedbourse.cli.account import account_app, payout_app
from fedbourse.cli.audit import audit_app
from fedbourse.cli.data import data_app
from fedbourse.cli.demo import demo
from fedbourse.cli.demo_network import demo_network
from fedbourse.cli.device import device_app
from fedbourse.cli.device_advise import advise
from fedbourse.cli.device_check import check
from fedbourse.cli.device_deals import join, leave, run
from fedbourse.cli.device_results import ledger
from fedbourse.cli.device_results import verify as device_verify
from fedbourse.cli.lab import lab
from fedbourse.cli.rotate_key import rotate_key
from fedbourse.cli.serve import serve
from fedbourse.cli.solve import solve
from fedbourse.cli.study import study_app
from fedbourse.cli.study_accuracy import accuracy
from fedbourse.cli.study_aggregation import aggregation
from fedbourse.cli.study_calibrate import calibrate
from fedbourse.cli.study_deviations import deviations
from fedbourse.cli.study_evidence import evidence
from fedbourse.cli.study_unknown_values import unknown_values
from fedbourse.cli.task import task_app
from fedbourse.cli.task_card import card
from fedbourse.cli.task_evidence import evidence as task_evidence
from fedbourse.cli.task_evidence import reference
from fedbourse.cli.task_gradients import send_gradients
from fedbourse.cli.task_results import model, monitoring, report, watch
from fedbourse.cli.task_what_if import what_if
from fedbourse.cli.token import token_app
from fedbourse.cli.train import train_app
from fedbourse.cli.verify import verify
from fedbourse.errors import CannotWrite, FedbourseError, InvalidInput, Unauthenticated
from fedbourse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

app = App(
    name="fedbourse",
    help="A market where people are paid for the privacy that their data gives up.",
    version=__version__,
    help_format="markdown",
    suppress_keyboard_interrupt=False,
)
for command in (
    demo,
    demo_network,
    audit_app,
    data_app,
    solve,
    lab,
    study_app,
    train_app,
    serve,
    rotate_key,
    device_app,
    task_app,
    account_app,
    payout_app,
    token_app,
    verify,
):
    app.command(command)
for deal in (advise, check, join, run, leave, ledger, device_verify):
    device_app.command(deal)
for result in (
    card,
    reference,
    send_gradients,
    what_if,
    watch,
    report,
    task_evidence,
    monitoring,
    model,
):
    task_app.command(result)
for study in (accuracy, calibrate, aggregation, deviations, evidence, unknown_values):
    study_app.command(study)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app(
            tokens or ["--help"],
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
        if sys.stdout is not None:  # it may have been closed
            sys.stdout.flush()
    except BrokenPipeError:  # the reader, head say, has seen enough
        _close_output()
    except (CycloptsError, FedbourseError, OSError, MemoryError, KeyboardInterrupt) as error:
        sentence, exit_code = _explained(error)
        if isinstance(error, OSError):
            _close_output()
        print(f"fedbourse: {sentence}", file=sys.stderr)
        return exit_code
    return 0


def _close_output() -> None:
    """Send what is still unwritten nowhere, so that Python does not try again at its end."""
    if sys.__stdout__ is not None and sys.stdout is sys.__stdout__:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())


def _explained(error: BaseException) -> tuple[str, int]:
    """Return one sentence and an exit code; errors not listed here are bugs and show themselves."""
    match error:
        case CycloptsError():
            return f"{' '.join(str(error).split())} (see --help)", InvalidInput.exit_code
        case Unauthenticated() if "device" not in sys.argv[1:2]:
            hint = "a token comes from --token-file, FEDBOURSE_TOKEN_FILE or FEDBOURSE_TOKEN"
            return f"{error} ({hint})", error.exit_code
        case FedbourseError():
            return str(error), error.exit_code
        case OSError():
            sentence = f"{error.filename or 'the output'}: {error.strerror or error}"
            return sentence, CannotWrite.exit_code
        case MemoryError():
            return "not enough memory for this many owners", FedbourseError.exit_code
        case _:
            return "interrupted", 130
