"""The API's document: every operation with its errors and the proofs that it accepts."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from fedbourse.web.bodies import Body
from fedbourse.web.problems import MEDIA_TYPE

PROBLEM: dict[str, Any] = {
    "type": "object",
    "title": "Problem",
    "description": "An error (RFC 9457).",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "One sentence: what was found, what is right."},
        "code": {"type": "string", "description": "The class of error, for programs."},
        "reason": {"type": "string", "description": "Which rule of a device refused."},
    },
    "example": {
        "type": "urn:fedbourse:problem:NotFound",
        "title": "Not found",
        "status": 404,
        "detail": "there is no task 018f0c3e9a5b7d2c4e6f8a1b",
        "code": "NotFound",
    },
}
_PROOFS: dict[str, Any] = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of a buyer, an owner, an operator or an auditor: fbt_...",
    },
    "signature": {
        "type": "apiKey",
        "in": "header",
        "name": "Signature",
        "description": (
            "An Ed25519 signature of the request (RFC 9421) by an enrolled device, tag "
            "fedbourse-v1, covering @method, @authority, @path, @query, content-digest for writes "
            "and idempotency-key where present; created within 60 s, with a nonce used once."
        ),
    },
}
TOKEN: dict[str, Any] = {"security": [{"token": []}]}
"""For people and programs; each of these is the ``openapi_extra`` of a route."""
DEVICE: dict[str, Any] = {"security": [{"signature": []}]}
"""For devices."""
EITHER: dict[str, Any] = {"security": [{"token": []}, {"signature": []}]}
"""For any authenticated caller."""
ANYBODY: dict[str, Any] = {"security": [{}, {"token": []}, {"signature": []}]}
"""Public; authenticated callers may see more."""
BYTES: dict[str, Any] = {
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
}
BYTES_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file as it was uploaded.", "content": BYTES}
}
_HASH: dict[str, Any] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_WHOLE: dict[str, Any] = {"type": "string", "pattern": "^[0-9]{1,16}$"}
_MODEL_HASH = {"Fedbourse-Model-Hash": {"description": "SHA-256 of the body.", "schema": _HASH}}
MODEL_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The parameters, as little-endian doubles.",
        "content": BYTES,
        "headers": _MODEL_HASH,
    }
}
ROUND_REQUEST_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The parameters of the open round's model, as little-endian doubles.",
        "content": BYTES,
        "headers": {
            "Fedbourse-Round": {"description": "The open round.", "schema": _WHOLE},
            **_MODEL_HASH,
            "Fedbourse-Request": {"description": "The round request's hash.", "schema": _HASH},
            "Fedbourse-Previous": {"description": "The message before it.", "schema": _HASH},
            "Fedbourse-Deadline": {"description": "When it ends, in ms.", "schema": _WHOLE},
            "Fedbourse-Signature": {
                "description": "The market's signature of the round request.",
                "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]{86}$"},
            },
            "Fedbourse-Left-Ms": {"description": "How long that is from now.", "schema": _WHOLE},
        },
    },
    204: {"description": "No newer round was opened in that time."},
}
_KEY: dict[str, Any] = {
    "name": "idempotency-key",
    "in": "header",
    "required": True,
    "description": "Made by the caller; the same key again has no second effect.",
    "schema": {
        "type": "string",
        "minLength": 8,
        "maxLength": 128,
        "pattern": "^[!-~]{8,128}$",
        "title": "Idempotency-Key",
    },
}
"""Every write needs it; ``writes`` checks it."""


def describe(app: FastAPI) -> None:
    """Make an application serve its document, completed."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(
                get_openapi(
                    title=app.title,
                    version=app.version,
                    description=app.description,
                    routes=app.routes,
                    tags=app.openapi_tags,
                )
            )
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    parts = document.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for body in Body.__subclasses__():
        if body.__name__ in schemas:
            # The framework leaves out of examples what is null in them.
            extra: Any = body.model_config.get("json_schema_extra", {})
            schemas[body.__name__].update(extra)
    schemas["Problem"] = PROBLEM
    parts["securitySchemes"] = _PROOFS
    parts["responses"] = {
        "Problem": {
            "description": "An error: nothing was changed.",
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    }
    for path in document["paths"].values():
        for method, operation in path.items():
            if method != "get":
                operation.setdefault("parameters", []).append(_KEY)
            responses = operation["responses"]
            responses.pop("422", None)
            for status in ("4XX", "5XX"):
                responses[status] = {"$ref": "#/components/responses/Problem"}
    return document
