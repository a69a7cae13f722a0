"""Every command, error and public name is documented; generated pages are up to date."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

import fedbourse
from fedbourse import errors
from fedbourse.cli import main

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
assert spec is not None
assert spec.loader is not None
generate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generate)


@pytest.mark.parametrize("page", list(generate.PAGES))
def test_generated_pages_are_up_to_date(page: str) -> None:
    written = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")
    assert written == generate.PAGES[page](), "run make docs"


def test_every_option_is_explained() -> None:
    options = re.findall(r"^\* `(--[^`]+)`(.*)$", generate.command_line(), re.MULTILINE)
    assert len(options) > 20
    assert not [name for name, text in options if not re.match(r": \w", text)]


def test_every_command_has_an_example() -> None:
    for section in re.split(r"^#+ fedbourse ", generate.command_line(), flags=re.MULTILINE)[1:]:
        if "[OPTIONS]" in section:
            assert re.search(r"^    (.*\| )?fedbourse ", section, re.MULTILINE), section[:40]


def test_every_error_has_an_exit_code_and_a_page() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    for name, error in vars(errors).items():
        if isinstance(error, type) and issubclass(error, Exception):
            assert f"`{name}`" in page
            assert 1 <= error.exit_code < 126
            assert 400 <= error.http_status < 600


TRAINING = "--data synthetic:d=5,n=1000 --owners 9 --samples 20 --rounds 3 --seeds 2"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "solve --uniform 1:5 --owners 9",
        "study paper --draws 2 --out OUT",
        "demo --data synthetic:d=5,n=2000 --samples 50 --reward 1 --out OUT",
        "audit noise --mechanism simulated --runs 50",
        f"study accuracy {TRAINING} --out OUT",
        f"study calibrate {TRAINING}",
        f"study weights {TRAINING}",
        "study deviations --only ring,smallest-budget --plays 1 --out OUT",
    ],
)
def test_every_key_of_the_json_documents_is_explained(command, capsys, tmp_path) -> None:
    page = (ROOT / "docs" / "reference" / "json.md").read_text()
    assert main([*command.replace("OUT", str(tmp_path)).split(), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = [row for value in document.values() if isinstance(value, list) for row in value]
    rows += [document[key] for key in ("accuracy", "money", "fit") if key in document]
    keys = {*document, *(key for row in rows if isinstance(row, dict) for key in row)}
    assert not [key for key in keys if f"`{key}`" not in page]


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_public_names_are_importable_and_listed() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    for name in fedbourse.__all__:
        assert getattr(fedbourse, name) is not None
        assert f"## {name}\n" in page


def test_the_layers_of_the_page_are_those_of_the_linter() -> None:
    contract = (ROOT / "pyproject.toml").read_text()
    block = (ROOT / "ARCHITECTURE.md").read_text().split("```")[1]
    for line in block.strip().splitlines():
        layer = re.split(r"\s{2,}", line)[0]
        assert f'"{layer}"' in contract, layer
