"""What a device can do wrong, to prove that the tests would see it.

Each fault is planted in a forked device only, by changing the product's functions there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_Later = list[Callable[[], None]]


def _after_sending(later: _Later) -> None:
    """Carry out what is left over once an update has been sent."""
    from fedbourse.device.market_client import MarketClient

    send = MarketClient.update

    def send_and_do(client: Any, *args: Any, **options: Any) -> Any:
        try:
            return send(client, *args, **options)
        finally:
            while later:
                later.pop(0)()

    MarketClient.update = send_and_do  # type: ignore[assignment]


def sends_before_it_charges() -> None:
    """Draw and send, and charge afterwards."""
    from fedbourse.privacy.filter import Filter

    later: _Later = []

    def update(guard: Any, round_request: Any, draw: Any, *, cost: float) -> bytes:
        stored = guard.check(round_request, cost=cost)
        if stored is not None:
            return bytes(stored)
        vector: bytes = draw()
        later.append(lambda: guard.charge(round_request, cost=cost))
        later.append(lambda: guard.keep(round_request, vector))
        return vector

    Filter.update = update  # type: ignore[assignment]
    _after_sending(later)


def sends_before_it_stores() -> None:
    """Charge, draw and send, and store afterwards."""
    from fedbourse.privacy.filter import Filter

    later: _Later = []

    def update(guard: Any, round_request: Any, draw: Any, *, cost: float) -> bytes:
        stored = guard.charge(round_request, cost=cost)
        if stored is not None:
            return bytes(stored)
        vector: bytes = draw()
        later.append(lambda: guard.keep(round_request, vector))
        return vector

    Filter.update = update  # type: ignore[assignment]
    _after_sending(later)


def draws_again_for_a_repeated_request() -> None:
    """Forget the stored update when the same round request comes again."""
    from fedbourse.privacy.filter import Filter

    check, charge = Filter.check, Filter.charge

    def forgetful(real: Any) -> Any:
        def forget(guard: Any, round_request: Any, *, cost: float) -> None:
            real(guard, round_request, cost=cost)

        return forget

    def keep(guard: Any, round_request: Any, update: bytes) -> bytes:
        with guard._store.transaction() as books:
            if books.update(round_request.task) is None:
                books.put_update(round_request.task, update)
        return update

    Filter.check, Filter.charge = forgetful(check), forgetful(charge)  # type: ignore
    Filter.keep = keep  # type: ignore[assignment]


def forgets_to_reserve() -> None:
    """Sign terms first, and reserve the budget for them afterwards."""
    from fedbourse.device.market_client import MarketClient
    from fedbourse.privacy.filter import Filter

    agree = Filter.agree
    later: list[Any] = []
    decide = MarketClient.decide

    def agree_later(guard: Any, terms: Any) -> None:
        later.append((guard, terms))

    def decide_and_agree(client: Any, *args: Any, **options: Any) -> None:
        decide(client, *args, **options)
        while later:
            agree(*later.pop())

    Filter.agree = agree_later  # type: ignore[assignment]
    MarketClient.decide = decide_and_agree  # type: ignore[assignment]


def keeps_reserved_what_it_gave_up() -> None:
    """Sign other terms, and leave the budget of those before open."""
    from fedbourse.device.reservations import Reservations

    Reservations.free = lambda reservations: None  # type: ignore[assignment]


FAULTS = {
    fault.__name__: fault
    for fault in (
        sends_before_it_charges,
        sends_before_it_stores,
        draws_again_for_a_repeated_request,
        forgets_to_reserve,
        keeps_reserved_what_it_gave_up,
    )
}
