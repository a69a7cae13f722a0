"""What a market's refusal stands for: the error that its code names, and its sentence."""

from __future__ import annotations

from fedbourse import errors
from fedbourse.encoding.strict_json import read_json
from fedbourse.errors import FedbourseError, InvalidInput, ProtocolError, Refused, Unreachable

_DETAIL_MAX, _REASON_MAX = 600, 60
_ERRORS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, FedbourseError)
}


def refusal(server_url: str, status: int, body: bytes) -> FedbourseError:
    """Return the error that a response stands for: the class that its code names, its sentence."""
    try:
        problem = read_json(body)
    except InvalidInput:
        problem = None
    detail = problem.get("detail") if isinstance(problem, dict) else None
    kind = _ERRORS.get(str(problem.get("code"))) if isinstance(problem, dict) else None
    if not isinstance(detail, str) or kind is None:
        error = Unreachable if status >= 500 else ProtocolError
        return error(f"{server_url} responds with status {status} and without a known reason")
    # Shown on a terminal: no escape sequences from a stranger.
    sentence = _printable(detail[:_DETAIL_MAX])
    if kind is Refused:
        return Refused(_printable(str(problem.get("reason", ""))[:_REASON_MAX]), sentence)
    return kind(sentence)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
