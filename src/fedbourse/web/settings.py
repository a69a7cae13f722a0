"""What whoever runs the service can set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Bounds of the service. Every one of them is finite."""

    name: str = "fedbourse"
    """What the market calls itself."""
    authorities: tuple[str, ...] = ()
    """The hosts, with ports, that signed requests may be meant for; any if empty. Without it a
    market that a device also trades with could pass the device's requests on to this one."""
    json_bytes_max: int = 2**20
    answer_bytes_max: int = 8_000_000 + 4096
    """A million doubles, and room for what surrounds them."""
    waiting_bytes_max: int = 256 * 2**20
    """Bodies held in memory at once, of all requests together."""
    waiting_bytes_per_peer: int = 32 * 2**20
    """The same, of the requests of one network address: four answers of the largest size."""
    body_timeout_s: float = 60.0
    """How long a body may take to arrive."""
    peer_per_s: float = 200.0
    peer_burst: int = 1000
    """Requests of one network address."""
    caller_per_s: float = 50.0
    caller_burst: int = 200
    """Requests of one party, once it has proved who it is."""
    heavy_per_s: float = 5.0
    heavy_burst: int = 10
    """Of these, those for what is computed at length: what a card would buy, for one, or whether
    a task's records are right."""
    heavy_at_once: int = 8
    heavy_strangers_at_once: int = 4
    """How much of that is computed at one moment, one for each party or address at most."""
    wait_max_s: float = 30.0
    """A request that asks to wait for longer is answered after so long."""
    waiting_max: int = 900
    waiting_per_peer: int = 190
    """Requests that wait for news; fewer than connections, so that others are still answered."""
    waiting_strangers_max: int = 450
    """How many of them may be of callers who did not prove who they are."""
    waiting_per_caller: int = 30
    """How many of them may be of one party that did: a device needs one for each of its tasks."""
    waiting_poll_s: float = 0.1
    """How soon those who wait hear of what another process changed."""
    streams_max: int = 300
    streams_per_peer: int = 30
    stream_poll_s: float = 1.0
    heartbeat_s: float = 15.0
