"""Every error that fedbourse raises on purpose, in one tree.

Each class says how the command line ends (``exit_code``) and how the service answers
(``http_status``). A message is one sentence that shows the value found and what would be right.
"""


class FedbourseError(Exception):
    """The root of the tree: catching it catches every error that fedbourse raises on purpose."""

    exit_code = 1
    http_status = 500


class InvalidInput(FedbourseError):
    """What was asked makes no sense; asking again the same way cannot help."""

    exit_code = 2
    http_status = 422


class InvalidNumber(InvalidInput):
    """A number is missing, of the wrong type, not finite, or outside its range."""


class InvalidGame(InvalidInput):
    """The owners' values, entry costs, caps or records do not describe a game."""


class InvalidCost(InvalidInput):
    """A privacy cost is unknown, or does not rise, is not convex, or is not zero at budget zero."""


class InvalidFile(InvalidInput):
    """A file cannot be read, or does not hold what it was named for."""


class InvalidData(InvalidInput):
    """Records for training are too few, not finite, wrongly labelled, or of one class only."""


class InvalidTransfer(InvalidInput):
    """Money cannot move this way: no amount, one account twice, too little in it, or a used id."""


class NoEquilibrium(FedbourseError):
    """The game is well posed, but no pure equilibrium was found; the message says why."""

    exit_code = 3
    http_status = 409


class MissingExtra(FedbourseError):
    """An optional library is needed; the message names the extra that installs it."""

    exit_code = 4
    http_status = 501


class CannotWrite(FedbourseError):
    """A result could not be stored: no permission, no space, or no such folder."""

    exit_code = 5
    http_status = 507


class Refused(FedbourseError):
    """A device's filter will not answer; ``reason`` names the rule, and nothing was spent."""

    exit_code = 6
    http_status = 409

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class AuditFailed(FedbourseError):
    """An audit found what honest noise almost never shows; the report names the test."""

    exit_code = 7
    http_status = 409


class Unauthenticated(FedbourseError):
    """The request carries no token or signature that the market knows, or one that is too old."""

    exit_code = 8
    http_status = 401


class NotAllowed(FedbourseError):
    """The caller is known, but this is not its to do."""

    exit_code = 9
    http_status = 403


class NotFound(FedbourseError):
    """There is no such thing, or it is not the caller's to see."""

    exit_code = 10
    http_status = 404


class Conflict(FedbourseError):
    """The request came at the wrong time, or contradicts what was said before."""

    exit_code = 11
    http_status = 409


class LeftTask(Conflict):
    """The owner has withdrawn from the task, and that cannot be taken back."""


class TooLarge(FedbourseError):
    """The body of a request exceeds what the market reads."""

    exit_code = 12
    http_status = 413


class TooManyRequests(FedbourseError):
    """The caller asks more often than the market allows; the answer says when to ask again."""

    exit_code = 13
    http_status = 429


class Unreachable(FedbourseError):
    """The market or its database does not answer; asking again later can help."""

    exit_code = 14
    http_status = 503


class ProtocolError(FedbourseError):
    """A reply of the market breaks the protocol: not valid, too large, or without an end."""

    exit_code = 16
    http_status = 502


class LedgerMismatch(FedbourseError):
    """A task's records, recomputed, do not say what they should; the report names each line."""

    exit_code = 15
    http_status = 409


class BrokenPromise(FedbourseError):
    """A mechanism does not keep what it promises, or breaks a proven bound; the lab says where."""

    exit_code = 17
    http_status = 409
