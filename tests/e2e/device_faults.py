"""What a device can do wrong, to prove that the tests would see it.

Each fault is planted in a forked device only, by changing the product's functions there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_Later = list[Callable[[], None]]


def _after_sending(later: _Later) -> None:
    """Carry out what is left over once an answer has been sent."""
    from fedbourse.agent.market_client import MarketClient

    send = MarketClient.answer

    def send_and_do(client: Any, *args: Any, **options: Any) -> Any:
        try:
            return send(client, *args, **options)
        finally:
            while later:
                later.pop(0)()

    MarketClient.answer = send_and_do  # type: ignore[method-assign]


def answers_before_it_charges() -> None:
    """Draw and send, and charge afterwards."""
    from fedbourse.privacy.filter import Filter

    later: _Later = []

    def answer(guard: Any, question: Any, draw: Any, *, cost: float) -> bytes:
        kept = guard.check(question, cost=cost)
        if kept is not None:
            return bytes(kept)
        drawn: bytes = draw()
        later.append(lambda: guard.charge(question, cost=cost))
        later.append(lambda: guard.keep(question, drawn))
        return drawn

    Filter.answer = answer  # type: ignore[method-assign]
    _after_sending(later)


def sends_before_it_stores() -> None:
    """Charge, draw and send, and store afterwards."""
    from fedbourse.privacy.filter import Filter

    later: _Later = []

    def answer(guard: Any, question: Any, draw: Any, *, cost: float) -> bytes:
        kept = guard.charge(question, cost=cost)
        if kept is not None:
            return bytes(kept)
        drawn: bytes = draw()
        later.append(lambda: guard.keep(question, drawn))
        return drawn

    Filter.answer = answer  # type: ignore[method-assign]
    _after_sending(later)


def draws_again_for_a_repeated_question() -> None:
    """Forget the stored answer when the same question comes again."""
    from fedbourse.privacy.filter import Filter

    check, charge = Filter.check, Filter.charge

    def forgetful(real: Any) -> Any:
        def forget(guard: Any, question: Any, *, cost: float) -> None:
            real(guard, question, cost=cost)

        return forget

    def keep(guard: Any, question: Any, answer: bytes) -> bytes:
        with guard._store.transaction() as books:
            if books.answer(question.task) is None:
                books.put_answer(question.task, answer)
        return answer

    Filter.check, Filter.charge = forgetful(check), forgetful(charge)  # type: ignore
    Filter.keep = keep  # type: ignore[method-assign]


def forgets_to_reserve() -> None:
    """Sign terms first, and reserve the budget for them afterwards."""
    from fedbourse.agent.market_client import MarketClient
    from fedbourse.privacy.filter import Filter

    agree, later = Filter.agree, []  # type: ignore[var-annotated]
    decide = MarketClient.decide

    def agree_later(guard: Any, terms: Any) -> None:
        later.append((guard, terms))

    def decide_and_agree(client: Any, *args: Any, **options: Any) -> None:
        decide(client, *args, **options)
        while later:
            agree(*later.pop())

    Filter.agree = agree_later  # type: ignore[method-assign]
    MarketClient.decide = decide_and_agree  # type: ignore[method-assign]


def keeps_reserved_what_it_gave_up() -> None:
    """Sign other terms, and leave the budget of those before open."""
    from fedbourse.agent.reservations import Reservations

    Reservations.free = lambda reservations: None  # type: ignore[method-assign]


FAULTS = {
    fault.__name__: fault
    for fault in (
        answers_before_it_charges,
        sends_before_it_stores,
        draws_again_for_a_repeated_question,
        forgets_to_reserve,
        keeps_reserved_what_it_gave_up,
    )
}
