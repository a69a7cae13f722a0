"""The one write of a device that is not enrolled yet, signed with the key that it brings."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response

from fedbourse.errors import Unauthenticated
from fedbourse.market.ports import Transaction
from fedbourse.protocol.keys import key_id
from fedbourse.protocol.signatures import Request, verify_request
from fedbourse.web.context import write_response
from fedbourse.web.identity import check_authority, use_nonce
from fedbourse.web.service import Service
from fedbourse.web.writes import carry_out


def enrol(
    service: Service,
    request: Request,
    public_key: str,
    command: Callable[[Transaction, str], object],
) -> Response:
    """Carry out a command that enrols the device of a public key, whose id it is given."""
    device, now_ms = key_id(public_key), service.market.now_ms()
    check_authority(request, service.settings.authorities)
    if any(name.lower() == "authorization" for name, _ in request.headers):
        raise Unauthenticated("a new device proves itself by its signature alone; send no token")
    signature = verify_request(
        request, lambda name: public_key if name == device else None, now_ms=now_ms
    )
    outcome = carry_out(
        service.store,
        request,
        caller=f"device:{device}",
        confirm=lambda tx: use_nonce(signature, tx),
        command=lambda tx: command(tx, device),
        now_ms=now_ms,
        status=201,
    )
    return write_response(outcome)
