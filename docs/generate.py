"""Write the pages of docs/reference that come from the code. `make docs` runs this."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
import textwrap
from itertools import pairwise
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

import fedbourse
import fedbourse.learning
import fedbourse.study
import fedbourse.study.deviations
from fedbourse import errors
from fedbourse.cli.main import app
from fedbourse.game.presentation import Presentable
from fedbourse.market.lifecycle import LIFE, diagram
from fedbourse.market.service import Market
from fedbourse.web.app import create_app

if TYPE_CHECKING:
    from collections.abc import Callable

DOCS = Path(__file__).parent


def command_line() -> str:
    """The page of every command and option."""
    return app.generate_docs().rstrip() + "\n"


def error_tree() -> str:
    """The page of every error, its exit code and its HTTP status."""
    lines = [
        "# Errors",
        "",
        "Every error is a `FedbourseError`. Its message is one sentence that says what was found",
        "and what is allowed. The command line prints it after `fedbourse:` on standard error and",
        "ends with the exit code; 0 is success and 130 an interruption (Ctrl-C).",
        "",
        "| error | exit code | HTTP status | meaning |",
        "|---|---|---|---|",
    ]
    for name, error in inspect.getmembers(errors, inspect.isclass):
        parent = error.__bases__[0].__name__
        kind = "" if parent == "Exception" else f" (a kind of `{parent}`)"
        meaning = inspect.getdoc(error)
        lines.append(f"| `{name}` | {error.exit_code} | {error.http_status} | {meaning}{kind} |")
    return "\n".join(lines) + "\n"


def python_names() -> str:
    """The page of every public name."""
    lines = [
        "# Python",
        "",
        "All of this is imported from `fedbourse`, and below from the modules that headings name.",
        "Arguments after `*` are given by name.",
    ]
    for name in fedbourse.__all__:
        lines += ["", f"## {name}", "", *_public(name, getattr(fedbourse, name))]
    for module in MODULES:
        lines += ["", f"## {module.__name__}", "", inspect.getdoc(module) or ""]
        for name in module.__all__:
            lines += [
                "",
                f"### {module.__name__}.{name}",
                "",
                *_public(name, getattr(module, name)),
            ]
    return "\n".join(lines).replace("\n\n\n", "\n\n").rstrip() + "\n"


def _public(name: str, thing: Any) -> list[str]:
    """Describe a class, a function or a list of choices."""
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return ["See [errors](errors.md)."]
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return [thing if isinstance(thing, str) else ", ".join(f"`{item}`" for item in thing)]
    lines = []
    if inspect.isfunction(thing) or name in MADE_BY_CALLERS:
        lines += ["```python", f"{name}{_signature(thing)}", "```", ""]
    lines += [inspect.getdoc(thing) or ""]
    if inspect.isclass(thing):
        lines += ["", *_fields(thing), *_methods(thing)]
    return lines


def life_cycle() -> str:
    """The page of a task's life, from the table that the market obeys."""
    lines = [
        "# The life of a task",
        "",
        "One table (`market/lifecycle.py`) says what may happen to a task, who may do it, and what",
        "the next state is. Everything else is refused. The scheduler acts for the market when a",
        "deadline of the card has come, or when everything that it waited for has arrived.",
        "",
        "```mermaid",
        diagram(),
        "```",
        "",
        "| state | command | by | next state |",
        "|---|---|---|---|",
    ]
    for (state, command), rule in LIFE.items():
        who = ", ".join(rule.by)
        lines.append(f"| {state.value} | {command.value} | {who} | {rule.next.value} |")
    return "\n".join(lines) + "\n"


def api() -> str:
    """The page of every route of the market's API, from its OpenAPI document."""
    nothing = cast("Any", None)
    document = create_app(Market(nothing), nothing, nothing).openapi()
    lines = [
        "# The market's API",
        "",
        "Every market serves the same as OpenAPI at `/v1/openapi.json`. Money is in whole",
        "micro-credits, times are milliseconds since 1970 UTC. Every write carries an",
        "`Idempotency-Key`. Errors are problem details (RFC 9457) with `type`, `title`,",
        "`status`, `detail` and `code`, the name of an [error](errors.md).",
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            lines += ["", f"## {method.upper()} {path}", "", operation["description"]]
            lines += ["", f"Proof: {_proofs(operation)}."]
            lines += _parameters(operation) + _bodies(operation, document)
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _proofs(operation: dict[str, Any]) -> str:
    names = [name for choice in operation.get("security", []) for name in choice or ("none",)]
    return " or ".join(names) or "none"


def _parameters(operation: dict[str, Any]) -> list[str]:
    rows = [
        f"- `{each['name']}` ({each['in']}): {each.get('description', '')}".rstrip(": ")
        for each in operation.get("parameters", [])
    ]
    return ["", *rows] if rows else []


def _bodies(operation: dict[str, Any], document: dict[str, Any]) -> list[str]:
    """Show examples of requests and responses."""
    lines = []
    content = operation.get("requestBody", {}).get("content", {})
    lines += _examples("Request", content, document)
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            lines += _examples(f"Response {status}", response.get("content", {}), document)
    return lines


def _examples(title: str, content: dict[str, Any], document: dict[str, Any]) -> list[str]:
    lines = []
    for media, part in content.items():
        example = _example(part, document)
        lines += ["", f"{title}, `{media}`" + (":" if example is not None else ".")]
        if example is not None:
            lines += ["", "```json", json.dumps(example, indent=2, ensure_ascii=False), "```"]
    return lines


def _example(part: dict[str, Any], document: dict[str, Any]) -> Any:
    if "example" in part:
        return part["example"]
    for example in part.get("examples", {}).values():
        return example["value"]
    schema = part.get("schema", {})
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema.get("example")


MODULES = (fedbourse.study, fedbourse.study.deviations, fedbourse.learning)
"""Whose public names are in the page of names too."""

MADE_BY_CALLERS = {
    "Accuracy",
    "ExactNoise",
    "Filter",
    "Guarantees",
    "MechanismRule",
    "Observation",
    "Outcome",
    "ParticipantSketch",
    "Purchase",
    "RoundRequest",
    "Sample",
    "SimulatedNoise",
    "Terms",
    "Training",
    "TrialTask",
    "Uniform",
}


def _fields(thing: type) -> list[str]:
    """List a class's annotated attributes with the strings that stand under them."""
    body = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0].body  # type: ignore[attr-defined]
    result = []
    for node, after in pairwise([*body, ast.Pass()]):
        if isinstance(node, ast.AnnAssign) and not ast.unparse(node.target).startswith("_"):
            documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            text = f": {' '.join(str(after.value.value).split())}" if documented else ""
            result.append(f"- `.{ast.unparse(node.target)}` ({ast.unparse(node.annotation)}){text}")
    return result


def _methods(thing: type) -> list[str]:
    result = []
    members = dict(vars(thing))
    if issubclass(thing, Presentable):
        shared = {name: vars(Presentable)[name] for name in ("to_frame", "to_dict", "plot")}
        members = shared | members
    for name, member in members.items():
        if isinstance(member, property) and not name.startswith("_"):
            result.append(f"- `.{name}`: {_first_line(member.fget)}")
        elif not name.startswith("_") and isinstance(member, (FunctionType, classmethod)):
            function = getattr(thing, name)
            result.append(f"- `.{name}{_signature(function)}`: {_first_line(function)}")
    return result


def _signature(thing: Callable[..., object]) -> str:
    parts, named = [], False
    signature = inspect.signature(thing)
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not named:
            parts.append("*")
            named = True
        default = "" if parameter.default is parameter.empty else f" = {_default(parameter)}"
        parts.append(f"{parameter.name}: {parameter.annotation}{default}")
    returned = signature.return_annotation
    return f"({', '.join(parts)})" + (f" -> {returned}" if isinstance(returned, str) else "")


def _default(parameter: inspect.Parameter) -> str:
    """Return a default as a reader would write it."""
    if inspect.isfunction(parameter.default):
        name = parameter.default.__name__
        return "nothing" if name in ("<lambda>", "no_progress") else name
    return repr(parameter.default)


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


PAGES = {
    "api.md": api,
    "cli.md": command_line,
    "errors.md": error_tree,
    "life-cycle.md": life_cycle,
    "python.md": python_names,
}


def main() -> None:
    """Write every page and the picture of the README."""
    for name, page in PAGES.items():
        (DOCS / "reference" / name).write_text(page(), encoding="utf-8")
    study = DOCS.parent / "build" / "docs-study"
    subprocess.run(
        [sys.executable, "-m", "fedbourse", "study", "paper", "--out", str(study)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    images = DOCS / "images"
    images.mkdir(exist_ok=True)
    (images / "overview.png").write_bytes((study / "overview.png").read_bytes())


if __name__ == "__main__":
    main()
