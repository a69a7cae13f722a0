"""The notebooks run from the first cell to the last, and hold no outputs that could be stale.

Cells run in one namespace, in order, as plain Python: no kernel, which would bring a message queue
and a web server into the set-up to find out the same. What a notebook would show of a cell's last
expression is made too. Outputs are not stored, so that what a reader sees is what the code gives.
"""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
CELL_KEYS = {
    "code": {"cell_type", "id", "metadata", "source", "execution_count", "outputs"},
    "markdown": {"cell_type", "id", "metadata", "source"},
}


def check_form(notebook: dict[str, Any]) -> None:
    """Refuse what is not notebook format 4.5, or holds outputs."""
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"]["language"] == "python"
    names = [cell["id"] for cell in notebook["cells"]]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z0-9-_]{1,64}", name) for name in names)
    for cell in notebook["cells"]:
        assert set(cell) == CELL_KEYS[cell["cell_type"]]
        assert all(isinstance(line, str) for line in cell["source"])
        assert not cell.get("outputs"), "clear the outputs: they may not be what the code gives"
        assert cell.get("execution_count") is None


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """Run the code cells in order, and show what each ends with."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, cell["id"], "exec"), names)
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), cell["id"], "eval"), names)
            repr(shown)
            if hasattr(shown, "_repr_html_"):
                shown._repr_html_()
    return names


@pytest.fixture(autouse=True)
def plain_figures(monkeypatch, tmp_path):
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    monkeypatch.chdir(tmp_path)
    yield
    plt.close("all")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_its_first_cell_to_its_last(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    check_form(notebook)
    run(notebook)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_notebooks_lead_somewhere(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    text = "\n".join("".join(cell["source"]) for cell in notebook["cells"])
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    assert targets
    assert not [target for target in targets if not (path.parent / target).exists()]


def test_there_are_three_notebooks() -> None:
    assert len(NOTEBOOKS) == 3


def notebook_of(**changes: Any) -> dict[str, Any]:
    cell = {
        "cell_type": "code", "id": "cell-00", "metadata": {}, "source": ["1 + 1"],
        "execution_count": None, "outputs": [],
    }  # fmt: skip
    kernel = {"kernelspec": {"language": "python"}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": [cell | changes]}


def test_a_cell_that_fails_is_caught() -> None:
    check_form(notebook_of())
    run(notebook_of())
    for source in ("undefined", "1 / 0", "x = 1\nassert x == 2"):
        with pytest.raises((NameError, ZeroDivisionError, AssertionError)):
            run(notebook_of(source=[source]))


def test_a_stored_output_is_caught() -> None:
    for changes in ({"outputs": [{"output_type": "stream"}]}, {"execution_count": 3}):
        with pytest.raises(AssertionError):
            check_form(notebook_of(**changes))
