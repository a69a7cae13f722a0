"""One spelling for every document, so that equal content has one hash."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from fedbourse.encoding.documents import plain


def canonical(document: object) -> bytes:
    """Return a document or record as JSON with sorted keys, no spaces, and no NaN or infinity.

    >>> canonical({"b": 1.0, "a": "é"})
    b'{"a":"\\xc3\\xa9","b":1.0}'
    """
    text = json.dumps(
        document,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
        default=_document,
    )
    return text.encode()


def _document(record: object) -> Any:
    document = plain(record)
    if document is record:
        raise TypeError(f"{type(record).__name__} is no document")
    return document


def digest(document: object) -> str:
    """Return the SHA-256 of a document's canonical form."""
    return hashlib.sha256(canonical(document)).hexdigest()
