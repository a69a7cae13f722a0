"""Rounds of training, their answers, and what became of those in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Update,
    and_,
    bindparam,
    func,
    null,
    select,
    update,
)

from fedbourse.errors import Conflict, NotFound
from fedbourse.market.task import Answer, ClosedRound, Drift, RefusedAnswer, Round
from fedbourse.storage.schema import answers, refusals, rounds
from fedbourse.storage.schema import drifts as sums
from fedbourse.storage.unit import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# A vector has up to 8 MB, which nobody reads but who closes the round.
_ANSWER = [null() if each is answers.c.vector else each for each in answers.c]
_OF_ROUND = rounds.c.task == bindparam("task"), rounds.c.number == bindparam("number")
_ROUND = select(rounds).where(*_OF_ROUND)
_QUERY = select(rounds.c.query).where(*_OF_ROUND)
_TO_ROUND = answers.c.task == bindparam("task"), answers.c.round == bindparam("round")
_ONE_ANSWER = select(*_ANSWER).where(*_TO_ROUND, answers.c.owner == bindparam("owner"))
_COUNT = select(func.count()).select_from(answers).where(*_TO_ROUND)


class SqlRounds(Part):
    """``market.ports.Rounds``."""

    def add_round(self, round: Round) -> None:
        """Store a new round."""
        if not self._add(rounds, vars(round)):
            raise Conflict(f"task {round.task} has a round {round.number} already")

    def round(self, task: str, number: int) -> Round:
        """Return a round, or raise ``NotFound``."""
        row = self._run(_ROUND, {"task": task, "number": number}).first()
        if row is None:
            raise _no_round(task, number)
        return Round(*row)

    def sign_round(self, task: str, number: int, signature: str) -> None:
        """Store another signature of a round's question, or raise ``NotFound``."""
        signed = update(rounds).where(_round(task, number)).values(signature=signature)
        if not self._changed(signed):
            raise _no_round(task, number)

    def has_round(self, task: str, number: int) -> bool:
        """Say whether a round was ever opened."""
        return self._run(select(rounds.c.number).where(_round(task, number))).first() is not None

    def query_hash(self, task: str, number: int) -> str:
        """Return the hash of a round's query message, or raise ``NotFound``."""
        row = self._run(_QUERY, {"task": task, "number": number}).first()
        if row is None:
            raise _no_round(task, number)
        return str(row[0])

    def close_round(self, task: str, number: int, *, at_ms: int, answers: int) -> None:
        """Store that a round has ended, and drop its model and its answers' vectors."""
        ended = {"closed_ms": at_ms, "answers": answers, "model": b""}
        closed = update(rounds).where(_round(task, number)).values(**ended)
        if not self._changed(closed):
            raise _no_round(task, number)
        self._run(_dropped(task, number))

    def add_answer(self, answer: Answer) -> None:
        """Store an answer; a second one of the same owner and round raises ``Conflict``."""
        if not self._add(answers, vars(answer)):
            raise Conflict(f"{answer.owner} has answered round {answer.round} already")

    def answer(self, task: str, round: int, owner: str) -> Answer | None:
        """Return an owner's answer, but its vector."""
        row = self._run(_ONE_ANSWER, {"task": task, "round": round, "owner": owner}).first()
        return row and Answer(*row)

    def last_answer(self, task: str, owner: str) -> Answer | None:
        """Return the owner's answer to the latest round that it answered, but its vector."""
        query = select(*_ANSWER).where(answers.c.task == task, answers.c.owner == owner)
        row = self._run(query.order_by(answers.c.round.desc()).limit(1)).first()
        return row and Answer(*row)

    def answers(
        self, task: str, round: int, *, after: str = "", limit: int | None = None
    ) -> list[Answer]:
        """Return the answers of a round of owners whose name comes after this one, by name."""
        query = select(*_ANSWER).where(_answers(task, round), answers.c.owner > after)
        return [Answer(*row) for row in self._run(query.order_by(answers.c.owner).limit(limit))]

    def vectors(self, task: str, round: int, *, at_once: int) -> Iterator[tuple[str, bytes]]:
        """Return owners and the vectors of their answers, by name, so many of them in memory."""
        query: Select[Any] = select(answers.c.owner, answers.c.vector)
        query = query.where(_answers(task, round)).order_by(answers.c.owner)
        with self._run(query.execution_options(yield_per=at_once)) as found:
            yield from found

    def count_answers(self, task: str, round: int) -> int:
        """Return how many came."""
        return int(self._run(_COUNT, {"task": task, "round": round}).scalar_one())

    def closed_rounds(self, task: str, *, last: int | None = None) -> list[ClosedRound]:
        """Return the rounds that are closed, or the last ones of them, in order."""
        query = select(rounds.c.number, rounds.c.answers).where(rounds.c.task == task)
        query = query.where(rounds.c.closed_ms.is_not(None)).order_by(rounds.c.number.desc())
        return [ClosedRound(*row) for row in self._run(query.limit(last))][::-1]

    def put_refused_answer(self, refused: RefusedAnswer) -> None:
        """Store that an answer was refused, in place of an earlier one to the same round."""
        self._put(refusals, vars(refused))

    def refused_answers(self, task: str) -> dict[str, dict[str, int]]:
        """Return how many rounds' answers were refused, by owner and reason."""
        by = refusals.c.owner, refusals.c.reason
        query = select(*by, func.count()).where(refusals.c.task == task)
        found: dict[str, dict[str, int]] = {}
        for name, reason, count in self._run(query.group_by(*by).order_by(*by)):
            found.setdefault(name, {})[reason] = count
        return found

    def drifts(self, task: str) -> list[Drift]:
        """Return the sums of all owners who answered, by name."""
        query = select(sums).where(sums.c.task == task).order_by(sums.c.owner)
        return [Drift(*row) for row in self._run(query)]

    def put_drifts(self, drifts: Iterable[Drift]) -> None:
        """Store sums, in place of earlier ones of the same owners."""
        rows = [dict(vars(each)) for each in drifts]
        if not rows:
            return
        insert = self._insert(sums)
        changing = [each.name for each in sums.c if not each.primary_key]
        self._run(
            insert.on_conflict_do_update(
                index_elements=["task", "owner"],
                set_={name: insert.excluded[name] for name in changing},
            ),
            rows,
        )


def _round(task: str, number: int) -> ColumnElement[bool]:
    return and_(rounds.c.task == task, rounds.c.number == number)


def _answers(task: str, round: int) -> ColumnElement[bool]:
    return and_(answers.c.task == task, answers.c.round == round)


def _dropped(task: str, round: int) -> Update:
    return update(answers).where(_answers(task, round)).values(vector=None)


def _no_round(task: str, number: int) -> NotFound:
    return NotFound(f"task {task!r:.60} has no round {number}")
