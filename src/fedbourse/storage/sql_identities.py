"""Tokens, devices, keys, nonces, ended sessions and stored responses in SQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, and_, bindparam, delete, exists, or_, select, update

from fedbourse.errors import Conflict, NotFound
from fedbourse.market.parties import EnrolledDevice, Enrolment, Scope, Token
from fedbourse.market.records import Response
from fedbourse.protocol.rotation import Rotation
from fedbourse.storage.identity_tables import (
    devices,
    ended_sessions,
    enrolments,
    nonces,
    responses,
    rotations,
    tokens,
)
from fedbourse.storage.transaction import BaseTransaction

_DEVICE = select(devices).where(devices.c.id == bindparam("device"))
_ENDED = select(ended_sessions).where(ended_sessions.c.id == bindparam("session"))
_TOKEN = select(tokens).where(tokens.c.hash == bindparam("hash"))
_KEEP = (
    update(responses)
    .where(responses.c.caller == bindparam("of_caller"), responses.c.key == bindparam("of_key"))
    .values({name: bindparam(name) for name in ("fingerprint", "status", "body")})
)


class SqlIdentities(BaseTransaction):
    """``market.ports.Identities``."""

    def add_token(self, token: Token) -> None:
        if not self._add(tokens, vars(token) | {"scopes": " ".join(sorted(token.scopes))}):
            raise Conflict(f"there is a token {token.id!r:.60} already")

    def token_with(self, hash: str) -> Token | None:
        row = self._run(_TOKEN, {"hash": hash}).first()
        return row and _token(row)

    def tokens(self, *, after: str = "", limit: int) -> list[Token]:
        query = select(tokens).where(tokens.c.id > after).order_by(tokens.c.id).limit(limit)
        return [_token(row) for row in self._run(query)]

    def live_tokens(self, scope: Scope, *, at_ms: int, limit: int) -> list[str]:
        live = and_(
            (" " + tokens.c.scopes + " ").contains(f" {scope} "),
            tokens.c.revoked_ms.is_(None),
            or_(tokens.c.expires_ms.is_(None), tokens.c.expires_ms > at_ms),
        )
        query = select(tokens.c.id).where(live).order_by(tokens.c.id).limit(limit)
        return [row.id for row in self._run(query)]

    def revoke_token(self, token: str, *, at_ms: int) -> int:
        live = and_(tokens.c.id == token, tokens.c.revoked_ms.is_(None))
        self._run(update(tokens).where(live).values(revoked_ms=at_ms))
        row = self._run(select(tokens.c.revoked_ms).where(tokens.c.id == token)).first()
        if row is None:
            raise NotFound(f"there is no token {token!r:.60}")
        return int(row.revoked_ms)

    def add_enrolment(self, enrolment: Enrolment) -> None:
        if not self._add(enrolments, vars(enrolment)):
            raise Conflict("this one-time token is stored already")

    def has_enrolment(self, hash: str) -> bool:
        return bool(self._run(select(exists().where(enrolments.c.hash == hash))).scalar())

    def use_enrolment(self, hash: str, *, at_ms: int) -> str | None:
        usable = and_(
            enrolments.c.hash == hash,
            enrolments.c.used_ms.is_(None),
            enrolments.c.expires_ms > at_ms,
        )
        used = update(enrolments).where(usable).values(used_ms=at_ms)
        owner: str | None = self._run(used.returning(enrolments.c.owner)).scalar()
        return owner

    def put_device(self, device: EnrolledDevice) -> None:
        others = and_(
            devices.c.owner == device.owner,
            devices.c.id != device.id,
            devices.c.retired_ms.is_(None),
        )
        self._run(update(devices).where(others).values(retired_ms=device.enrolled_ms))
        values = dict(vars(device))
        stored = self._changed(
            self._insert(devices)
            .values(**values)
            .on_conflict_do_update(
                index_elements=["id"],
                set_={name: values[name] for name in ("public_key", "enrolled_ms", "retired_ms")},
                where=devices.c.owner == device.owner,
            )
        )
        if not stored:
            raise Conflict(f"device {device.id} is another owner's")

    def device(self, device: str) -> EnrolledDevice | None:
        row = self._run(_DEVICE, {"device": device}).first()
        return row and EnrolledDevice(*row)

    def add_rotation(self, rotation: Rotation) -> None:
        if not self._add(rotations, vars(rotation)):
            raise Conflict(f"the key {rotation.old} has a successor already")

    def rotations(self) -> list[Rotation]:
        query = select(rotations).order_by(rotations.c.at_ms, rotations.c.old)
        return [Rotation(*row) for row in self._run(query)]

    def remember_nonce(self, device: str, nonce: str, *, expires_ms: int) -> bool:
        return self._add(nonces, {"device": device, "nonce": nonce, "expires_ms": expires_ms})

    def end_session(self, session: str, *, expires_ms: int) -> None:
        self._add(ended_sessions, {"id": session, "expires_ms": expires_ms})

    def has_ended(self, session: str) -> bool:
        return self._run(_ENDED, {"session": session}).first() is not None

    def claim(self, caller: str, key: str, fingerprint: str, *, expires_ms: int) -> Response | None:
        # The insert comes first: it waits for others who claim the key at the same time.
        row = {"caller": caller, "key": key, "fingerprint": fingerprint, "expires_ms": expires_ms}
        if self._add(responses, row):
            return None
        own = responses.c.caller == caller, responses.c.key == key
        stored = self._run(select(responses).where(*own)).one()
        if stored.status is None:
            raise Conflict(f"the key {key!r:.140} was used before and has no response; use another")
        return Response(fingerprint=stored.fingerprint, status=stored.status, body=stored.body)

    def keep_response(self, caller: str, key: str, response: Response) -> None:
        values = {"of_caller": caller, "of_key": key, **vars(response)}
        if not self._changed(_KEEP, values):
            raise NotFound(f"the key {key!r:.140} was not claimed")

    def purge(self, *, now_ms: int) -> None:
        for table in (nonces, ended_sessions, responses):
            self._run(delete(table).where(table.c.expires_ms < now_ms))


def _token(row: Row[Any]) -> Token:
    return Token(**{**row._mapping, "scopes": frozenset(row.scopes.split())})
