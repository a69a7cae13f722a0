"""``fedbourse audit ...``: is noise what it claims? A report, and an exit code."""

from __future__ import annotations

import io
import math
from pathlib import Path  # noqa: TC003 - read at run time, by the parser of arguments
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Group, Parameter
from rich.text import Text

from fedbourse.cli.option_values import Clip, Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.output import PEOPLE, Blocks, Output, progress_bar, table
from fedbourse.errors import AuditFailed, InvalidFile
from fedbourse.units import whole_number
from fedbourse.version import __version__

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from fedbourse.privacy.audit import Audit, Claim

_CLAIM, _AUDIT = (Group.create_ordered(name) for name in ("Claim", "Audit"))
_POWER = 0.99  # where a fault is noticed more rarely, the report says how many runs it takes

FaultName = Literal[
    "half-sigma", "low-sigma", "reused-noise", "reused-between-runs", "double-sensitivity"
]

audit_app = App(name="audit", help="Test whether noise is what it claims to be.")


@audit_app.command
def noise(
    *,
    rho: Annotated[float, Parameter(group=_CLAIM)] = 0.5,
    rounds: Annotated[Whole, Parameter(group=_CLAIM)] = 10,
    dimension: Annotated[Whole, Parameter(group=_CLAIM)] = 10,
    samples: Annotated[Whole, Parameter(group=_CLAIM)] = 1000,
    clip: Annotated[Clip, Parameter(group=_CLAIM)] = 1.0,
    mechanism: Annotated[Literal["exact", "simulated"], Parameter(group=_AUDIT)] = "exact",
    fault: Annotated[FaultName | None, Parameter(group=_AUDIT)] = None,
    runs: Annotated[Whole, Parameter(group=_AUDIT)] = 400,
    alpha: Annotated[float, Parameter(group=_AUDIT)] = 1e-4,
    seed: Annotated[Whole, Parameter(group=_AUDIT)] = 0,
    output: Output = PEOPLE,
) -> None:
    """Run a device again and again, and test its updates against what its terms claim.

    One record of the device's owner, the canary, has one of two signs, drawn anew in each run. The
    updates must be normal around what the claim implies, never share noise, and show the sign no
    better than claimed. Ends with exit code 7 if a test fails.

    For example:

        fedbourse audit noise

        fedbourse audit noise --rho 0.1 --rounds 50 --runs 1000 --json

        fedbourse audit noise --fault low-sigma

    Parameters
    ----------
    rho
        The budget of a whole run, in zCDP.
    rounds
        The updates of a run.
    dimension
        The numbers in an update.
    samples
        Records behind each update.
    mechanism
        The noise of devices, or the fast, seeded noise of studies.
    fault
        Plant a fault, to see the audit notice it.
    runs
        How often the device runs.
    alpha
        The probability, at most, that honest noise fails the audit.
    seed
        Where draws of records, signs and simulated noise start; exact noise has no seed.
    """
    from fedbourse.learning.canary import canary_subject
    from fedbourse.privacy.audit import audit_noise

    claim = _claim(rho=rho, clip=clip, samples=samples, rounds=rounds, dimension=dimension)
    count, first = whole_number("runs", runs, at_least=1), whole_number("seed", seed, at_least=0)
    subject = canary_subject(claim, mechanism=mechanism, fault=fault, seed=first)
    with progress_bar("runs", transient=True) as advance:
        audit = audit_noise(
            subject,
            claim,
            runs=count,
            alpha=alpha,
            seed=first,
            progress=lambda done: advance(done, count),
        )
    _report(audit, {"mechanism": mechanism, "fault": fault, "seed": first}, output)


@audit_app.command
def residuals(
    file: Annotated[Path, Parameter(group=_AUDIT)],
    /,
    *,
    rho: Annotated[float, Parameter(group=_CLAIM)],
    samples: Annotated[Whole, Parameter(group=_CLAIM)],
    clip: Annotated[Clip, Parameter(group=_CLAIM)] = 1.0,
    alpha: Annotated[float, Parameter(group=_AUDIT)] = 1e-4,
    seed: Annotated[Whole, Parameter(group=_AUDIT)] = 0,
    output: Output = PEOPLE,
) -> None:
    """Test recorded noise: updates minus the updates without noise.

    Whoever knows an owner's records, the owner itself say, can compute what its updates would have
    been without noise. Without a canary nothing is said about how far one record moves an update.
    Ends with exit code 7 if a test fails.

    For example:

        fedbourse audit residuals recorded.npy --rho 0.5 --samples 1000

    Parameters
    ----------
    file
        A .npy or .npz file with one array of shape (runs, rounds, dimension) or (rounds,
        dimension), every run being a whole one.
    rho
        The budget of a whole run, in zCDP.
    samples
        Records behind each update.
    alpha
        The probability, at most, that honest noise fails the audit.
    seed
        Where the draw of what is compared starts, if there is too much to compare it all.
    """
    from fedbourse.privacy.audit import audit_residuals

    recorded = _recorded(file)
    _, rounds, dimension = recorded.shape
    claim = _claim(rho=rho, clip=clip, samples=samples, rounds=rounds, dimension=dimension)
    first = whole_number("seed", seed, at_least=0)
    audit = audit_residuals(recorded, claim, alpha=alpha, seed=first)
    _report(audit, {"mechanism": "recorded", "fault": None, "seed": first}, output)


def _claim(*, rho: float, clip: float, samples: float, rounds: float, dimension: float) -> Claim:
    from fedbourse.privacy.audit import Claim

    return Claim(
        rho=rho,
        clip=clip,
        samples=whole_number("samples", samples, at_least=1),
        rounds=whole_number("rounds", rounds, at_least=1),
        dimension=whole_number("dimension", dimension, at_least=1),
    )


def _recorded(file: Path) -> npt.NDArray[np.float64]:
    """Return the one array of a file, of shape (runs, rounds, dimension)."""
    import numpy as np

    try:
        data = file.read_bytes()
    except OSError as error:
        raise InvalidFile(f"{file}: {error.strerror}") from None
    try:
        loaded = np.load(io.BytesIO(data), allow_pickle=False)
        one = isinstance(loaded, np.ndarray)
        arrays = [loaded] if one else [loaded[name] for name in loaded.files]
    except Exception:  # a damaged file fails in many ways, each as little our fault
        raise InvalidFile(f"{file} is not a valid .npy or .npz file of numbers") from None
    if len(arrays) != 1:
        raise InvalidFile(f"{file} must hold one array; it holds {len(arrays)}")
    array = arrays[0]
    if array.dtype.kind not in "fiu" or array.ndim not in (2, 3) or not array.size:
        raise InvalidFile(
            f"{file} must hold numbers of shape (runs, rounds, dimension) or (rounds, dimension); "
            f"found {array.dtype} of shape {array.shape}"
        )
    runs: npt.NDArray[np.float64] = array.astype(np.float64).reshape((-1, *array.shape[-2:]))
    return runs


def _report(audit: Audit, origin: dict[str, Any], output: Output) -> None:
    document = _document(audit, origin)
    output.show(document, _in_words)
    if not audit.passed:
        raise AuditFailed(document["verdict"])


def _document(audit: Audit, origin: dict[str, Any]) -> dict[str, Any]:
    from fedbourse.privacy.audit import FAULT_DESCRIPTIONS

    claim = audit.claim
    return {
        "passed": audit.passed,
        "verdict": _verdict(audit),
        "runs": audit.runs,
        "alpha": audit.alpha,
        "epsilon_claimed": audit.epsilon_claimed,
        "epsilon_lower_bound": audit.epsilon_lower_bound,
        "noise_scale": claim.sigma,
        **{name: getattr(claim, name) for name in ("rho", "rounds", "dimension", "samples")},
        "clip": claim.clip,
        "delta": claim.delta,
        **origin,
        "version": __version__,
        "findings": [
            {
                "test": finding.name,
                "catches": finding.catches,
                "statistic": finding.statistic,
                "p_value": finding.p_value,
                "limit": finding.threshold,
                "passed": finding.passed,
            }
            for finding in audit.findings
        ],
        "power": [
            {
                "fault": fault,
                "in_words": FAULT_DESCRIPTIONS[fault],
                "probability": power,
                "runs_needed": audit.runs_needed(fault, power=_POWER),
            }
            for fault, power in audit.power.items()
        ],
    }


def _verdict(audit: Audit) -> str:
    failed = [finding.name for finding in audit.findings if not finding.passed]
    tests = len(audit.findings)
    if failed:
        return f"the noise is not what it claims: {len(failed)} of {tests} tests failed, " + (
            ", ".join(failed)
        )
    return (
        f"no sign of wrong noise: all {tests} tests passed; honest noise fails one of them with "
        f"probability {audit.alpha:g} at most"
    )


def _in_words(document: dict[str, Any]) -> Blocks:
    passed, failed = Text("passed", "green"), Text("FAILED", "bold red")
    yield table(
        document["findings"],
        {
            "<test": "{test}",
            "<fails if": "{catches}",
            "p-value": "{p_value:.2g}",
            "limit": "{limit:.2g}",
            "verdict": lambda finding: passed if finding["passed"] else failed,
        },
    )
    shown = document["epsilon_lower_bound"]
    yield ""
    yield {
        "watched": f"{document['runs']} runs x {document['rounds']} rounds x "
        f"{document['dimension']} numbers, with noise of sigma {document['noise_scale']:.4g}",
        "claimed": f"epsilon {document['epsilon_claimed']:.3g} about one record, at delta "
        f"{document['delta']:g} (rho {document['rho']:g})",
        "shown": "nothing about epsilon: that takes a canary"
        if shown is None
        else f"epsilon {shown:.3g} about one record, at least",
    }
    yield ""
    for fault in document["power"]:
        yield _noticed(fault, document["runs"])
    if document["passed"]:
        verdict = document["verdict"]
        yield ""
        yield f"{verdict[0].upper()}{verdict[1:]}."


def _noticed(fault: dict[str, Any], runs: int) -> str:
    power, needed = fault["probability"], fault["runs_needed"]
    # Rounded down, and never to certainty.
    shown = f"{math.floor(power * 1e4) / 1e4:g}" if power < 0.9999 else "above 0.9999"
    sentence = f"would notice {fault['in_words']} with probability {shown}"
    if power >= _POWER:
        return sentence
    if needed is None:
        return f"{sentence}; no number of runs gives {_POWER:g}"
    return f"{sentence}; {_POWER:g} takes {needed} runs, {needed - runs} more"
