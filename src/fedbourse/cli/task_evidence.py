"""``fedbourse task reference`` and ``evidence``: the buyer's records, and what they showed."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - read at run time, by the parser of arguments
from typing import Annotated, Any

from cyclopts import Parameter

from fedbourse.cli.files import read_bytes
from fedbourse.cli.output import PEOPLE, Blocks, Column, Output, table
from fedbourse.cli.server_options import NO_OPTIONS, ServerOptions, TaskId, pages, task_id
from fedbourse.units import credits_text

_ENDED = ("completed", "cancelled")
_VERDICTS = {
    "shown": "follow the reference",
    "undecided": "too little to tell",
    "dismissed": "do not follow it",
}


def reference(
    task: TaskId,
    file: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    server: ServerOptions = NO_OPTIONS,
    output: Output = PEOPLE,
) -> None:
    """Upload the reference records of a draft whose card has evidence.

    task create does it by itself where the file lies beside the card.

    For example:

        fedbourse task reference latest card.reference

    Parameters
    ----------
    file
        What task card --evidence wrote beside the card; - for standard input.
    """
    from fedbourse.tasks.evidence import REFERENCE_BYTES_MAX

    content = read_bytes(file, at_most=REFERENCE_BYTES_MAX)
    with server.connect() as connection:
        path = f"/v1/tasks/{task_id(connection, task)}"
        draft = connection.put_bytes(f"{path}/reference", content)
    output.show(
        draft,
        lambda draft: (
            f"task {draft['task']} has its reference records; fedbourse task open {draft['task']}"
        ),
    )


def evidence(
    task: TaskId, /, *, server: ServerOptions = NO_OPTIONS, output: Output = PEOPLE
) -> None:
    """Show what evidence found; before training, what it will be able to tell.

    Once the task has ended: to its buyer how many devices, to an owner its own score, to auditors
    and the operator all of them. Before training: to its buyer the budget below which a device
    cannot be judged and, once the task is settled, which part of the pay goes to smaller ones.
    In between nobody sees anything, for a score measures the reference.

    For example:

        fedbourse task evidence latest

        fedbourse task evidence 018f0c3e9a5b7d2c4e6f8a1b --token-file auditor.token --json
    """
    with server.connect() as connection:
        name = task_id(connection, task)
        path = f"/v1/tasks/{name}/evidence"
        if connection.get(f"/v1/tasks/{name}")["state"] not in _ENDED:
            output.show(connection.get(f"{path}/outlook"), lambda outlook: outlook["summary"])
            return
        report = connection.get(path, {"limit": 1})
        report["findings"] = list(pages(connection, path, "findings"))
    report.pop("next")
    output.show(report, _in_words)


def _in_words(report: dict[str, Any]) -> Blocks:
    yield report["summary"]
    yield ""
    yield {
        "devices": report["devices"],
        "follow the reference": report["shown"],
        "too little to tell": report["undecided"],
        "do not follow it": report["dismissed"],
        "to the fund": f"{credits_text(report['forfeited_micro'])} credits",
        "dismissals": _decisions(report["blocks"]),
    }
    if report["findings"]:
        yield ""
        yield table(report["findings"], _COLUMNS)


def _decisions(blocks: list[dict[str, Any]]) -> str:
    """Return in words whether dismissals count, block by block if there are several."""
    words = ["count" if each["stands"] else "are void" for each in blocks]
    if len(words) <= 1:
        return words[0] if words else "none: no block of rounds ended"
    return ", ".join(f"block {i}: {each}" for i, each in enumerate(words))


def _round(finding: dict[str, Any]) -> str:
    return "" if finding["dismissed_round"] is None else f"since round {finding['dismissed_round']}"


_COLUMNS: dict[str, Column] = {
    "owner": "{owner}",
    "block": "{block}",
    "rounds": "{rounds}",
    "score": "{score:.2f}",
    "<updates": lambda finding: f"{_VERDICTS[finding['verdict']]} {_round(finding)}".strip(),
    "<": lambda finding: "much like the others' last step" if finding["echoes"] else "",
}
