"""Enrolment: a device registers its key, and the market proves that it holds its own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fedbourse.device.deal import KnownMarket
from fedbourse.device.market_documents import checked_document
from fedbourse.encoding.canonical import digest
from fedbourse.errors import InvalidInput
from fedbourse.protocol import bounds
from fedbourse.protocol.connection import Connection
from fedbourse.protocol.keys import key_id
from fedbourse.protocol.messages import enrolment_message

if TYPE_CHECKING:
    from fedbourse.protocol.keys import SigningKey


def enrol(
    server: str, token: str, key: SigningKey, *, ca_file: str | None = None
) -> tuple[KnownMarket, object]:
    """Enrol with a one-time token; return the market, and its key rotations."""
    if not token.strip().startswith("fbe_"):
        raise InvalidInput(
            "a device enrols with a one-time token, which begins with fbe_ (fedbourse token "
            "enrol makes it); found something else"
        )
    connect = partial(
        Connection, server, ca_file=ca_file, document_bytes_max=bounds.DEVICE_DOCUMENT_BYTES_MAX
    )
    with connect(key=key) as connection:
        body = {"token": token.strip(), "public_key": key.public}
        # The same idempotency key each time: a device that ended too soon can enrol once more.
        response = connection.post("/v1/enrolments", body, idempotency_key=digest(body)[:32])
    enrolment = checked_document("enrolment", response)
    market = KnownMarket(
        key=enrolment["market_public_key"],
        server=server,
        device=key_id(key.public),
        owner=enrolment["owner"],
        ca_file=ca_file,
    )
    with connect(market_key=market.key) as connection:
        # Everybody knows a market's public key; only the market itself can sign with it.
        message = enrolment_message(
            device=market.device, owner=market.owner, host=connection.authority
        )
        connection.check_signed(message, enrolment["signature"])
        return market, connection.check_market().get("rotations")
