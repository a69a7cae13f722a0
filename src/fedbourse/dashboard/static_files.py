"""Our scripts and styles, and those that the set-up fetched: read once, served from memory.

An address with the file's hash may be kept for ever; one without is revalidated each time.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from starlette.responses import Response

from fedbourse.errors import NotFound

_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
VENDOR = ("vendor/htmx.min.js", "vendor/uPlot.iife.min.js", "vendor/uPlot.min.css")
"""What the set-up fetches; pages say so where it did not."""


@dataclass(frozen=True)
class StaticFile:
    """One file."""

    data: bytes
    kind: str

    @cached_property
    def hash(self) -> str:
        """A short hash of the content."""
        return hashlib.sha256(self.data).hexdigest()[:16]

    @cached_property
    def packed(self) -> bytes:
        """The content, compressed."""
        return gzip.compress(self.data, mtime=0)


class StaticFiles:
    """All files, by name."""

    def __init__(self) -> None:
        folder = Path(__file__).with_name("static")
        self._files = {
            each.relative_to(folder).as_posix(): StaticFile(each.read_bytes(), _TYPES[each.suffix])
            for each in folder.rglob("*")
            if each.suffix in _TYPES
        }

    @property
    def missing(self) -> list[str]:
        """Which of the fetched files are not there."""
        return [name for name in VENDOR if name not in self._files]

    def has(self, name: str) -> bool:
        """Say whether there is such a file."""
        return name in self._files

    def url(self, name: str) -> str:
        """Return the address of a file, with its hash."""
        return f"/static/{name}?v={self._files[name].hash}"

    def response(self, name: str, *, version: str, etags: str, encodings: str) -> Response:
        """Return a file as the response to a request."""
        file = self._files.get(name)
        if file is None:
            raise NotFound("there is no such file")
        headers = {
            "ETag": f'"{file.hash}"',
            "Vary": "Accept-Encoding",
            "Cache-Control": "public, max-age=31536000, immutable"
            if version == file.hash
            else "no-cache",
        }
        if f'"{file.hash}"' in etags:
            return Response(status_code=304, headers=headers)
        if "gzip" in encodings:
            return Response(
                file.packed, media_type=file.kind, headers=headers | {"Content-Encoding": "gzip"}
            )
        return Response(file.data, media_type=file.kind, headers=headers)
