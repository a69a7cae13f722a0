"""Ed25519 keys: of the market, and of each device.

Public keys and signatures are written as base64url without padding, in exactly one way.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from fedbourse.errors import CannotWrite, InvalidFile, InvalidInput

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

_FILE_MAX = 4096
_SMALL_ORDER = frozenset(
    bytes.fromhex(text)
    for text in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)
"""Keys under which one signature fits many messages, so that nobody can be held to it."""


class SigningKey:
    """A private key. It never shows itself in a text or an error."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public: str = _text(key.public_key().public_bytes_raw())
        """The public half."""

    @classmethod
    def generate(cls) -> SigningKey:
        """Make a new key."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SigningKey:
        """Read a key from its file, which nobody but its user may read."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            with Path(path).open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                text = file.read(_FILE_MAX + 1)
        except OSError as error:
            raise InvalidFile(f"the key file {path} cannot be read: {error.strerror}") from None
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            raise InvalidFile(
                f"the key file {path} can be read by others, mode {stat.S_IMODE(mode):o}; "
                "it must be 600"
            )
        try:
            key = load_pem_private_key(text, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise InvalidFile(f"the key file {path} holds no Ed25519 key without a passphrase")
        return cls(key)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the key to a new file, so that it is there whole or not at all."""
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        target = Path(path)
        text = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
        try:
            _write_new(draft, text)
            try:
                os.link(draft, target)  # fails where the target exists, which a rename would not
            finally:
                draft.unlink()
            _sync_folder(target.parent)
        except FileExistsError:
            raise CannotWrite(
                f"{path} exists already; a key is never overwritten, so name another file"
            ) from None
        except OSError as error:
            raise CannotWrite(f"the key cannot be written to {path}: {error.strerror}") from None

    def sign(self, message: bytes) -> str:
        """Return the signature of a message."""
        return _text(self._key.sign(message))

    def derive(self, purpose: str) -> str:
        """Return a secret for one purpose, which nobody without this key can find."""
        seed = self._key.private_bytes_raw()
        return _text(hmac.new(seed, f"fedbourse secret {purpose}".encode(), "sha256").digest())

    @property
    def private(self) -> Ed25519PrivateKey:
        """The key itself, for the library that signs requests."""
        return self._key


def public_key(public: str) -> Ed25519PublicKey:
    """Return a public key for the cryptography library, if it is one that can be trusted."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(_raw_public(public))


def verified(public: str, message: bytes, signature: str) -> bool:
    """Say whether the signature of a message was made with this key; rubbish was not."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        public_key(public).verify(_bytes(signature, 64), message)
    except (InvalidInput, InvalidSignature, UnsupportedAlgorithm, TypeError, ValueError):
        return False
    return True


def key_id(public: str) -> str:
    """Return the id of the device that holds this key: 16 hexadecimal digits of its hash."""
    return hashlib.sha256(_raw_public(public)).hexdigest()[:16]


def _raw_public(public: str) -> bytes:
    raw = _bytes(public, 32)
    # The highest bit is the sign of x, which makes no difference to the order.
    if raw[:-1] + bytes([raw[-1] & 0x7F]) in _SMALL_ORDER:
        raise InvalidInput(f"{public} is a weak public key, which binds nobody; make another one")
    return raw


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(text: object, length: int) -> bytes:
    """Return what a text stands for; the one spelling of it is the only one accepted."""
    raw = b""
    if isinstance(text, str) and text.isascii() and len(text) == (length * 4 + 2) // 3:
        with contextlib.suppress(binascii.Error, ValueError):
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != length or _text(raw) != text:
        raise InvalidInput(
            f"a key or signature of {length} bytes must be base64url without padding; "
            f"found {text!r:.60}"
        )
    return raw


def _write_new(path: Path, content: bytes) -> None:
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
