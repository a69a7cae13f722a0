"""Settings of the service."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Bounds of the service. Every one of them is finite."""

    name: str = "fedbourse"
    """What the market calls itself."""
    authorities: tuple[str, ...] = ()
    """The hosts, with ports, that signed requests may be meant for; any if empty. Without them
    another market that a device trades with could replay its requests here."""
    json_bytes_max: int = 2**20
    update_bytes_max: int = 8_000_000 + 4096
    """A million doubles, and some room."""
    waiting_bytes_max: int = 256 * 2**20
    """Bodies held in memory at once, of all requests together."""
    waiting_bytes_per_peer: int = 32 * 2**20
    """The same, of the requests of one network address: four updates of the largest size."""
    body_timeout_s: float = 60.0
    """How long a body may take to arrive."""
    peer_per_s: float = 200.0
    peer_burst: int = 1000
    """Requests of one network address."""
    peer_at_once: int = 2
    """Requests of one network address that are handled at once; more wait for these."""
    caller_per_s: float = 50.0
    caller_burst: int = 200
    """Requests of one authenticated party."""
    heavy_per_s: float = 5.0
    heavy_burst: int = 10
    """Of these, heavy ones (``web.heavy``): what-ifs, for one, or the check of a task's records."""
    heavy_at_once: int = 8
    heavy_strangers_at_once: int = 4
    """How many of those run at once, at most one for each party or address."""
    wait_max_s: float = 30.0
    """The longest time that a request may wait."""
    waiting_max: int = 900
    waiting_per_peer: int = 190
    """Long polls; fewer than connections, so that others are still served."""
    waiting_strangers_max: int = 450
    """How many of them may be of strangers."""
    waiting_per_caller: int = 30
    """How many of them may be of one authenticated party: a device needs one for each task."""
    waiting_poll_s: float = 0.1
    """How soon those who wait learn of a change by another process."""
    streams_max: int = 300
    streams_per_peer: int = 30
    stream_poll_s: float = 1.0
    heartbeat_s: float = 15.0
