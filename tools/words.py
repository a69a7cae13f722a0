"""Refuse names and phrases that docs/glossary.md replaces: ``python tools/words.py``.

A rule is a pattern, what to write instead, and where it counts. The glossary, the changelog,
upgrade notes and decision records may name old words.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

EXEMPT = (
    "docs/glossary.md", "docs/decisions/*", "docs/upgrading.md", "CHANGELOG.md", "tools/words.py",
    "*/vendor/*", "src/fedbourse/testing/*", "tests/test_docs.py",
)  # fmt: skip
SOURCE = ("src/*.py",)
MARKET = tuple(f"src/fedbourse/{name}/*.py" for name in ("market", "storage", "web", "dashboard"))
CODE = (*SOURCE, "tests/*.py", "benchmarks/*.py", "soak/*.py", "docs/*.py", "tools/*.py")
PAGES = ("*.md", "*.html")
TEXT = (*CODE, *PAGES, "*.js", "Makefile", "pyproject.toml")


@dataclass(frozen=True)
class Rule:
    """What must not be written, what to write instead, and in which files."""

    pattern: str
    instead: str
    files: tuple[str, ...] = TEXT


RULES = (
    # Names of things that have another name now.
    Rule(r"\b(NotSignedIn|BooksDiffer|Known(Page)?Visit|PageVisit(or)?)\b", "the glossary's name"),
    Rule(r"\bfedbourse[./](wire|agent|bootstrap)\b", "protocol, device, app"),
    Rule(r"\b(web/doors|market/(buying|selling|clock|drift)|agent/(wish|following))\b", "glossary"),
    Rule(r"\b(least_(price|rounds|withdrawal)|risk_rounds)\b", "min_price, max_unpaid_rounds"),
    Rule(r"--(least-\w+|risk-rounds|weights?)\b", "--min-..., --max-unpaid-rounds, --aggregation"),
    Rule(r"\bfedbourse (task drift|device withdraw|study weights)\b", "monitoring, leave, ..."),
    Rule(r"/v1/tasks/\S+/(mine|lines|drift|answers?)\b", "participation, allocations, ..."),
    Rule(r"\b(class|import) (Visit|Wish|Mark|Following|Crowd|Support)\b", "glossary", SOURCE),
    Rule(r"\bdrifts?( =|\.|\()|\bdef drift|\bdrift_\w+", "monitoring", CODE),
    # A participle is not the name of a thing.
    Rule(r"\b(found|known|said|told|asked|kept|taken|seen|came) = ", "name the thing", SOURCE),
    Rule(r"\b(unit|visit)\.\w+\(", "tx, context", MARKET),
    # Phrases on which a native reader stumbles.
    Rule(
        r"(?<!here )\bis no (JSON|number|file|list|table|folder|text|object|name|hash|key|date|"
        r"device|task|token|model|column|certificate|address|directory|budget|record)\b",
        "is not a ..., is not valid ...",
    ),
    Rule(r"\bdearest\b", "highest-value"),
    Rule(r"\bst(ands?|ood) still\b", "has converged"),
    Rule(r"\b[Mm]ade[ -]up (owners?|people|data|devices?|records?|clouds?|values?)\b", "simulated"),
    Rule(r"\bmade up: |\bis made up\b", "simulated", PAGES),
    Rule(r"\b(repeated|same|each|round's) questions?\b", "round request", PAGES),
    Rule(r"\banswered rounds?\b|\brounds? answered\b", "delivered", PAGES),
    Rule(r"\b(at|below|above) the threshold\b", "cutoff", PAGES),
    Rule(r"\bwithdr[ae]ws? from (a|the) task\b", "leave a task", PAGES),
)


def offences(root: Path) -> list[str]:
    """Return each place where a rule is broken, in the form FILE:LINE: what was found."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    places = []
    for name in listed.stdout.splitlines():
        rules = [rule for rule in RULES if any(fnmatch(name, glob) for glob in rule.files)]
        if not rules or any(fnmatch(name, glob) for glob in EXEMPT) or not (root / name).is_file():
            continue
        text = (root / name).read_text("utf-8")
        places += [
            f"{name}:{text.count(chr(10), 0, match.start()) + 1}: "
            f"found {match[0]!r}; write: {rule.instead}"
            for rule in rules
            for match in re.finditer(rule.pattern, text)
        ]
    return places


if __name__ == "__main__":
    places = offences(Path(__file__).parents[1])
    print("\n".join(places) or "no word that the glossary replaces")
    sys.exit(bool(places))
