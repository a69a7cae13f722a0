"""A market's new key, vouched for by the one before: whoever knows one follows to the last."""

from __future__ import annotations

from dataclasses import dataclass

from fedbourse.encoding.canonical import canonical
from fedbourse.errors import Unauthenticated
from fedbourse.protocol.keys import SigningKey, verified
from fedbourse.protocol.messages import Message, rotation_message

ROTATIONS_MAX = 1000
"""No market needs so many keys, and a device looks at each of them."""


@dataclass(frozen=True)
class Rotation:
    """The statement that a key takes the place of another, signed with both."""

    old: str
    new: str
    at_ms: int
    """From when on the market signs with the new one."""
    old_signature: str
    """With the old key, of the message of kind key-rotation: old, new and at_ms."""
    new_signature: str
    """With the new key, of the same."""

    @property
    def message(self) -> Message:
        """What is signed."""
        return rotation_message(old=self.old, new=self.new, at_ms=self.at_ms)


def rotate(old: SigningKey, new: SigningKey, *, at_ms: int) -> Rotation:
    """State that a key takes the place of another."""
    message = canonical(rotation_message(old=old.public, new=new.public, at_ms=at_ms))
    return Rotation(old.public, new.public, at_ms, old.sign(message), new.sign(message))


def keys_since(pinned: str, documents: object) -> tuple[str, ...]:
    """Return the keys that took the place of a pinned one, in order, by a market's statements.

    The key before signs each of them, which nobody else can, and the new one too, so that nobody
    names a key that is not its own. Statements that do not lead on from the pinned key are
    ignored.
    """
    statements = {each.old: each for each in _read(documents)}
    keys: list[str] = []
    last = pinned
    while (statement := statements.pop(last, None)) is not None:
        message = canonical(statement.message)
        for key, signature in (
            (statement.old, statement.old_signature),
            (statement.new, statement.new_signature),
        ):
            if not verified(key, message, signature):
                raise Unauthenticated(
                    f"the statement that the key {statement.new!a:.60} takes the place of "
                    f"{statement.old!a:.60} is not signed with {key!a:.60}"
                )
        last = statement.new
        keys.append(last)
    return tuple(keys)


def _read(documents: object) -> list[Rotation]:
    """Return statements as a market shows them; anything else is left out."""
    if not isinstance(documents, list) or len(documents) > ROTATIONS_MAX:
        return []
    fields = Rotation.__dataclass_fields__
    return [
        Rotation(**{name: each[name] for name in fields})
        for each in documents
        if isinstance(each, dict)
        and fields.keys() <= each.keys()
        and all(isinstance(each[name], str) for name in fields if name != "at_ms")
        and type(each["at_ms"]) is int
    ]
