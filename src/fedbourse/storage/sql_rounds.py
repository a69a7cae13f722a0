"""Rounds of training and their answers in SQL."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Update, and_, func, select, update

from fedbourse.errors import Conflict, NotFound
from fedbourse.market.task import Answer, Round
from fedbourse.storage.schema import answers, rounds
from fedbourse.storage.unit import Part


class SqlRounds(Part):
    """``market.ports.Rounds``."""

    def add_round(self, round: Round) -> None:
        """Store a new round."""
        if not self._add(rounds, vars(round)):
            raise Conflict(f"task {round.task} has a round {round.number} already")

    def round(self, task: str, number: int) -> Round:
        """Return a round, or raise ``NotFound``."""
        row = self._run(select(rounds).where(_round(task, number))).first()
        if row is None:
            raise _no_round(task, number)
        return Round(*row)

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
        """Return an owner's answer."""
        query = select(answers).where(_answers(task, round), answers.c.owner == owner)
        row = self._run(query).first()
        return row and Answer(*row)

    def last_answer(self, task: str, owner: str) -> Answer | None:
        """Return the owner's answer to the latest round that it answered."""
        query = select(answers).where(answers.c.task == task, answers.c.owner == owner)
        row = self._run(query.order_by(answers.c.round.desc()).limit(1)).first()
        return row and Answer(*row)

    def answers(self, task: str, round: int) -> list[Answer]:
        """Return the answers of a round, in the order of owners' names."""
        query = select(answers).where(_answers(task, round)).order_by(answers.c.owner)
        return [Answer(*row) for row in self._run(query)]

    def count_answers(self, task: str, round: int) -> int:
        """Return how many came."""
        query = select(func.count()).select_from(answers).where(_answers(task, round))
        return int(self._run(query).scalar_one())


def _round(task: str, number: int) -> ColumnElement[bool]:
    return and_(rounds.c.task == task, rounds.c.number == number)


def _answers(task: str, round: int) -> ColumnElement[bool]:
    return and_(answers.c.task == task, answers.c.round == round)


def _dropped(task: str, round: int) -> Update:
    return update(answers).where(_answers(task, round)).values(vector=None)


def _no_round(task: str, number: int) -> NotFound:
    return NotFound(f"task {task!r:.60} has no round {number}")
