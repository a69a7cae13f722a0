"""The lock: every file of a version has its hash in it, no address does, and pip holds to it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def wheel(folder: Path, version: str, tag: str) -> Path:
    """Make a wheel that holds nothing but its own name."""
    file = folder / f"things-{version}-{tag}.whl"
    info = f"things-{version}.dist-info"
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("things.py", f"FOR = {tag!r}\n")
        made.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: things\nVersion: {version}\n"
        )
        made.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        made.writestr(f"{info}/RECORD", "")
    return file


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """A package index in a folder: one version for two systems, and an older one."""
    page = tmp_path / "index" / "things"
    page.mkdir(parents=True)
    files = [wheel(page, "2.0", "py3-none-any"), wheel(page, "2.0", "cp313-cp313-win_amd64"),
             wheel(page, "1.0", "py3-none-any")]  # fmt: skip
    links = [f'<a href="{file.name}#sha256={sha256(file)}">{file.name}</a>' for file in files]
    (page / "index.html").write_text("\n".join(links))
    return tmp_path / "index"


def run(*arguments: str, index: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    settings = {
        "PIP_INDEX_URL": index.as_uri(),
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_CONFIG_FILE": os.devnull,
    }
    return subprocess.run(
        [sys.executable, *arguments],
        input=text, capture_output=True, text=True, check=False, env=clean | settings,
    )  # fmt: skip


def test_a_lock_has_the_hash_of_every_file_and_no_address(index: Path) -> None:
    made = run(str(ROOT / "tools/lock.py"), index=index, text="things==2.0\ntorch==2.13.0+cpu\n")
    assert made.returncode == 0, made.stderr
    hashes = sorted(sha256(file) for file in (index / "things").glob("things-2.0-*"))
    assert made.stdout.splitlines() == [
        "things==2.0 \\",
        f"    --hash=sha256:{hashes[0]} \\",
        f"    --hash=sha256:{hashes[1]}",
    ]


@pytest.mark.parametrize("line", ["things==3.0", "absent==1.0", "things @ file:///elsewhere"])
def test_what_has_no_hash_is_not_locked(line: str, index: Path) -> None:
    made = run(str(ROOT / "tools/lock.py"), index=index, text=line)
    assert made.returncode == 1
    assert line.split(maxsplit=1)[0] in made.stderr
    assert "Traceback" not in made.stderr


def test_a_file_with_another_hash_is_not_installed(index: Path, tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(run(str(ROOT / "tools/lock.py"), index=index, text="things==2.0\n").stdout)
    install = ("-m", "pip", "install", "--require-hashes", "--no-deps", "--requirement", str(lock))
    there = run(*install, "--target", str(tmp_path / "one"), index=index)
    assert there.returncode == 0, there.stderr
    assert (tmp_path / "one" / "things.py").exists()
    right = sha256(index / "things" / "things-2.0-py3-none-any.whl")
    lock.write_text(lock.read_text().replace(right, "0" * 64))
    refused = run(*install, "--target", str(tmp_path / "two"), index=index)
    assert refused.returncode != 0
    assert "DO NOT MATCH" in refused.stderr
    assert not (tmp_path / "two").exists()


def test_nothing_but_an_extra_keeps_a_library_from_newer_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    capped = {
        requirement.name
        for requirement in map(Requirement, project["dependencies"])
        if any(each.operator in ("<", "<=", "==", "~=") for each in requirement.specifier)
    }
    assert capped == set()
