"""Forms: where they may come from, what is in them, and how they are read.

A page's form begins with ``{{ form_fields(context) }}``: ``csrf`` ties it to the session, ``key``
makes a second click the same write. Routes read the rest with ``context.form(Model)``.
"""

from __future__ import annotations

import hmac
import typing
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, ValidationError

from fedbourse.encoding.plain_text import plain_text
from fedbourse.errors import InvalidInput, NotAllowed
from fedbourse.protocol.signatures import Request

_KIND = "application/x-www-form-urlencoded"
_FIELDS_MAX = 200
CSRF, KEY = "csrf", "key"
Fields = dict[str, list[str]]


class Form(BaseModel):
    """What a form of ours holds: named fields and no others; a blank field counts as left out."""

    model_config = ConfigDict(
        extra="forbid", allow_inf_nan=False, frozen=True, str_strip_whitespace=True
    )


AnyForm = TypeVar("AnyForm", bound=Form)


class InvalidForm(InvalidInput):
    """A form whose fields cannot be used as they are; ``errors`` has a sentence for each."""

    def __init__(self, errors: Mapping[str, str], fields: Fields) -> None:
        first = next(iter(errors.items()), ("form", "cannot be read"))
        super().__init__(f"{first[0].replace('_', ' ')}: {first[1]}")
        self.errors = dict(errors)
        self.values = typed(fields)
        """What was typed, so that the page can show it again."""


def typed(fields: Fields) -> dict[str, str]:
    """Return what somebody typed into each field."""
    return {name: texts[0] for name, texts in fields.items() if name not in (CSRF, KEY)}


def check_origin(request: Request) -> None:
    """Refuse a form that was sent by a page of somebody else."""
    site = request.header("sec-fetch-site")
    origin = request.header("origin")
    here = f"{request.scheme}://{request.authority}".lower()
    if origin is None or origin.lower() != here or site not in (None, "same-origin"):
        raise NotAllowed("this form was not sent by a page of this market; open the page again")


def check_csrf(fields: Fields, expected: str) -> None:
    """Refuse a form that another session's page holds, or none."""
    codes = fields.get(CSRF, [])
    if len(codes) != 1 or not hmac.compare_digest(codes[0].encode(), expected.encode()):
        raise NotAllowed("this form belongs to another sign-in; open the page again and repeat it")


def read_fields(request: Request) -> Fields:
    """Return the fields of a url-encoded body, each with all that it holds."""
    kind = (request.header("content-type") or "").partition(";")[0].strip().lower()
    if kind != _KIND:
        raise InvalidInput(f"a form must be sent as {_KIND}; found {kind or 'none'!r:.60}")
    try:
        pairs = parse_qsl(
            request.body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(request.body),
            errors="strict",
            max_num_fields=_FIELDS_MAX,
        )
    except ValueError:  # UnicodeDecodeError among them
        raise InvalidInput("the form cannot be read; open the page again and repeat it") from None
    fields: Fields = {}
    for name, value in pairs:
        plain_text("the name of a field", name)
        plain_text(f"the field {name.replace('_', ' ')[:60]}", value)
        fields.setdefault(name, []).append(value)
    return fields


def read_form(fields: Fields, model: type[AnyForm]) -> AnyForm:
    """Return fields as a model of them, or refuse with a sentence for each that is wrong."""
    content: dict[str, Any] = {}
    for name in typed(fields):
        filled = [value for value in fields[name] if value.strip()]
        field = model.model_fields.get(name)
        if field is not None and typing.get_origin(field.annotation) in (list, tuple):
            content[name] = filled
        elif filled:
            content[name] = filled[0] if len(filled) == 1 else filled
    try:
        return model.model_validate(content)
    except ValidationError as error:
        errors: dict[str, str] = {}
        for each in error.errors(include_url=False, include_input=False, include_context=False):
            name = str(each["loc"][0]) if each["loc"] else "form"
            errors.setdefault(name[:60], _sentence(each["type"], each["msg"]))
        raise InvalidForm(errors, fields) from None


def _sentence(kind: str, message: str) -> str:
    if kind == "missing":
        return "this is needed"
    if kind == "extra_forbidden":
        return "the form has no such field"
    return message.removeprefix("Value error, ").removeprefix("Input ")[:300]
