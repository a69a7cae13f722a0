"""Write a lock: each requirement with the hash of every file that the package index has of it.

Reads what ``pip freeze`` prints on standard input. The index is the one that pip is set to use, and
its address gets into no file: whoever installs may use another one, and the hashes still hold.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

WITHOUT_HASHES = frozenset({"torch"})
"""Its build differs between machines, by their graphics cards; it is installed by itself."""
_FORMS = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_SHA256 = re.compile("sha256=([0-9a-f]{64})")


class _Links(HTMLParser):
    """The files of a page of an index, each with the hash that follows its address."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take a link."""
        address, fragment = urldefrag(dict(attrs).get("href") or "")
        hash = _SHA256.fullmatch(fragment)
        if tag == "a" and hash:
            self.found[unquote(address.rpartition("/")[2])] = hash[1]


def indexes() -> list[str]:
    """Return the indexes that pip would ask: those of its settings, or its own default."""
    found = [_setting("index-url") or _default(), *_setting("extra-index-url").split()]
    return [each.rstrip("/") for each in found]


def _setting(name: str) -> str:
    variable = f"PIP_{name.replace('-', '_').upper()}"
    if variable in os.environ:
        return os.environ[variable].strip()
    asked = [sys.executable, "-m", "pip", "config", "get", f"global.{name}"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def _default() -> str:
    from pip._internal.models.index import PyPI

    return str(PyPI.simple_url)


def files_of(index: str, name: str) -> dict[str, str]:
    """Return the files that an index has of a package, with their hashes; none if it has none."""
    address = f"{index}/{name}/" + ("index.html" if index.startswith("file:") else "")
    request = urllib.request.Request(address, headers={"Accept": _FORMS})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            content, kind = answer.read(), answer.headers.get_content_type()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return {}
        raise
    except urllib.error.URLError as error:
        if isinstance(error.reason, FileNotFoundError) or index.startswith("file:"):
            return {}
        raise
    if kind.endswith("+json"):
        listed = json.loads(content)["files"]
        return {
            each["filename"]: each["hashes"]["sha256"]
            for each in listed
            if "sha256" in each["hashes"]
        }
    links = _Links()
    links.feed(content.decode())
    return links.found


def version_of(file: str) -> Version | None:
    """Return the version that a file's name says; None for what is neither wheel nor source."""
    try:
        if file.endswith(".whl"):
            return parse_wheel_filename(file)[1]
        return parse_sdist_filename(file)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None


def locked(requirement: str, roots: list[str]) -> str:
    """Return a requirement with all of its hashes."""
    name, _, version = requirement.partition("==")
    if not version:
        sys.exit(f"a lock needs NAME==VERSION; found {requirement!r}")
    hashes = {
        hash
        for root in roots
        for file, hash in files_of(root, canonicalize_name(name)).items()
        if version_of(file) == Version(version)
    }
    if not hashes:
        sys.exit(f"no index has a file of {requirement} with a SHA-256 hash")
    return " \\\n    ".join([requirement, *(f"--hash=sha256:{hash}" for hash in sorted(hashes))])


def main() -> None:
    """Read requirements, and print them with their hashes."""
    roots, asked = indexes(), sorted(sys.stdin.read().split("\n"), key=str.lower)
    wanted = [line.strip() for line in asked if line.strip()]
    names = {line: canonicalize_name(line.partition("==")[0]) for line in wanted}
    print("\n".join(locked(line, roots) for line in wanted if names[line] not in WITHOUT_HASHES))


if __name__ == "__main__":
    main()
