"""Where a market is, and whether it is safe to talk to it there."""

from __future__ import annotations

import ipaddress
from typing import Any
from urllib.parse import urlsplit

from fedbourse.errors import InvalidFile, InvalidInput


def loopback(host: str) -> bool:
    """Say whether a host is this machine.

    >>> loopback("127.0.0.1"), loopback("market.example")
    (True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def market_address(server_url: str) -> str:
    """Return a market's address without a slash at its end; http:// only on this machine.

    >>> market_address("https://market.example/")
    'https://market.example'
    """
    try:
        parts = urlsplit(server_url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    bare = not (parts.query or parts.fragment or parts.path.strip("/") or "@" in parts.netloc)
    if parts.scheme not in ("http", "https") or not parts.hostname or not bare or port == 0:
        raise InvalidInput(
            f"a market's address is https://HOST or https://HOST:PORT; found {server_url!r:.80}"
        )
    if parts.scheme == "http" and not loopback(parts.hostname):
        raise InvalidInput(
            f"http:// is for this machine only, and {parts.hostname:.60} is another one; "
            "use https://"
        )
    return f"{parts.scheme}://{parts.netloc}"


def certificates(ca_file: str | None) -> Any:
    """Return what to trust: the system's certificates, or those in a file."""
    import ssl

    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidFile(f"{ca_file} holds no certificates that can be read: {error}") from None
