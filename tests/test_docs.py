"""Every command, error and public name is documented; generated pages are up to date."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import fedbourse
from fedbourse import errors
from fedbourse.cli import main

ROOT = Path(__file__).parents[1]


def script(path: str) -> ModuleType:
    """Import a script that is not part of the package."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


generate = script("docs/generate.py")
words = script("tools/words.py")


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
            assert 1 <= error.exit_code < 126  # type: ignore[attr-defined]
            assert 400 <= error.http_status < 600  # type: ignore[attr-defined]


TRAINING = "--data synthetic:d=5,n=1000 --owners 9 --samples 20 --rounds 3 --seeds 2"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "solve --uniform 1:5 --owners 9",
        "lab --owners 4 --draws 2 --deviation-draws 0 --profiles uniform --out OUT",
        "study paper --draws 2 --out OUT",
        "demo --data synthetic:d=5,n=2000 --samples 50 --reward 1 --out OUT",
        "audit noise --mechanism simulated --runs 50",
        f"study accuracy {TRAINING} --out OUT",
        f"study calibrate {TRAINING}",
        f"study aggregation {TRAINING}",
        f"study evidence {TRAINING}",
        "study deviations --only ring,smallest-budget --plays 1 --out OUT",
        "study unknown-values --owners 9 --tasks 3 --repeats 2 --out OUT",
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
    for module in generate.MODULES:
        for name in module.__all__:
            assert getattr(module, name) is not None
            assert f"### {module.__name__}.{name}\n" in page


def test_the_layers_of_the_page_are_those_of_the_linter() -> None:
    contract = (ROOT / "pyproject.toml").read_text()
    block = (ROOT / "ARCHITECTURE.md").read_text().split("```")[1]
    for line in block.strip().splitlines():
        layer = re.split(r"\s{2,}", line)[0]
        assert f'"{layer}"' in contract, layer


@pytest.mark.parametrize(
    ("name", "text", "offends"),
    [
        ("docs/page.md", "the body is no JSON", True),
        ("docs/page.md", "there is no file, and the body is not valid JSON", False),
        ("src/fedbourse/module.py", "found = look()", True),
        ("src/fedbourse/module.py", "raise NotSignedIn", True),
        ("docs/glossary.md", "not: dearest", False),
        ("docs/how-to/page.md", "\nfedbourse task drift latest", True),
    ],
)
def test_words_that_the_glossary_replaces_are_refused(tmp_path, name, text, offends) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(text)
    places = words.offences(tmp_path)
    assert [place.split(":")[:2] for place in places] == (
        [[name, str(1 + text.count("\n"))]] if offends else []
    )


PROSE = [
    page
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    if page.name not in {"CHANGELOG.md", "upgrading.md"} and page.parent.name != "decisions"
]
NAMED_FILE = re.compile(r"`((?:[\w-]+/)*[\w-]+\.py)(?:::\w+[^`]*)?`")


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.name)
def test_files_that_pages_name_exist(page: Path) -> None:
    folders = [ROOT, ROOT / "src" / "fedbourse", page.parent]
    text = page.read_text(encoding="utf-8")
    named = {name for name in NAMED_FILE.findall(text) if "/" in name}
    assert not [name for name in named if not any((each / name).exists() for each in folders)]


NAMED_COMMAND = re.compile(r"\bfedbourse((?: [a-z][a-z-]*)+)([^`\n|#&)]*)")


def test_commands_and_options_that_pages_name_exist() -> None:
    reference = generate.command_line()
    usage = r"^fedbourse ([a-z-]+(?: [a-z][a-z-]*)?)(?![a-z-]| COMMAND$)"
    commands = set(re.findall(usage, reference, re.MULTILINE))
    options = set(re.findall(r"--[a-z][a-z-]*", reference))
    groups = {command.split()[0] for command in commands}
    unknown = []
    for page in PROSE:
        text = page.read_text(encoding="utf-8")
        code = "\n".join(re.findall(r"`[^`\n]+`|^\$ .*$", text, re.MULTILINE))
        for words, rest in NAMED_COMMAND.findall(code):
            parts = words.split()
            runs = {parts[0], " ".join(parts[:2])} & commands
            if parts[0] not in groups or (parts[1:] and not runs):
                unknown.append((page.name, words))
            wrong = set(re.findall(r"(?<!\S)--[a-z][a-z-]*", rest)) - options
            unknown += [(page.name, words, option) for option in wrong]
    assert not unknown, unknown


def test_paths_of_the_api_that_pages_name_exist() -> None:
    known = set(re.findall(r"^## [A-Z]+ (/v1\S*)$", generate.api(), re.MULTILINE))
    shapes = {re.sub(r"\{\w+\}", "X", path) for path in known} | {"/v1", "/v1/openapi.json"}
    for page in PROSE:
        for path in re.findall(r"`(?:[A-Z]+ )?(/v1[^`?\s]*)", page.read_text(encoding="utf-8")):
            shape = re.sub(r"\{\w+\}|\b[A-Z]+\b", "X", path)
            assert shape in shapes, f"{page.name}: {path}"


NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)?(?:::(\w+))?(?:\[([^`]+)\])?`")
CLAIMS = ROOT / "docs" / "operating" / "security.md"


def claims() -> list[tuple[str, str]]:
    """Return the rows of the two tables of the security page that have tests, with their tests."""
    rows, inside = [], False
    for line in CLAIMS.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        inside = line.startswith("|") and (inside or cells[-1] == "test")
        if inside and cells[-1] != "test" and not line.startswith("|---"):
            rows.append((cells[0], cells[-1]))
    return rows


@cache
def functions_in(path: Path) -> set[str]:
    """Return the names of all functions in a test file."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


@cache
def texts_in(path: Path) -> set[str]:
    """Return the texts in a test file, and in files of tests that it imports: names of cases."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    folders = {
        name: "src" if name.startswith("fedbourse.testing.") else "tests" for name in modules
    }
    tables = [ROOT / folders[name] / f"{name.replace('.', '/')}.py" for name in modules]
    trees = [tree, *(ast.parse(each.read_text("utf-8")) for each in tables if each.exists())]
    nodes = [node for each in trees for node in ast.walk(each)]
    return {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and node.value.__class__ is str
    }


@pytest.mark.parametrize(("row", "named"), claims(), ids=lambda text: text[:40])
def test_every_row_of_the_security_page_has_tests_that_exist(row: str, named: str) -> None:
    if named.startswith("–"):
        assert re.fullmatch(r"– \(.+\)", named), "say why there is nothing to test"
        return
    tests = [match for match in NAMED_TEST.finditer(named) if match[1] or match[3]]
    assert tests
    assert tests[0][1]
    file = Path()
    for path, test, case in (match.groups() for match in tests):
        file = ROOT / path if path else file
        assert test is None or test in functions_in(file), f"{file.name} has no test {test}"
        assert case is None or case in texts_in(file), f"{file.name} has no case {case}"


def test_both_tables_of_the_security_page_are_looked_at() -> None:
    rows = [row for row, _ in claims()]
    assert "somebody without a token, or with an invalid one, asks for writes" in rows
    assert "a second model in one round" in rows
    assert len(rows) > 60
