"""When a trade is over, its devices answer no more and keep no answer."""

import pytest

from fedbourse.bootstrap.demo import DemoSettings, demo_trade
from fedbourse.errors import InvalidInput, Refused
from fedbourse.learning.engines import LocalEngine
from fedbourse.privacy.filter import Question

SMALL = DemoSettings(data="synthetic:d=6,n=4000", samples=60, rounds=4, reward=1.0)


@pytest.fixture
def engines(monkeypatch):
    """Every engine that a trade makes."""
    made = []

    class Watched(LocalEngine):
        def __init__(self, *arguments, **options) -> None:
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr("fedbourse.market.trade.LocalEngine", Watched)
    return made


def test_devices_are_closed_and_forget_their_last_answer(engines) -> None:
    report = demo_trade(SMALL)
    for guard in engines[0].filters:
        (account,) = guard.accounts()
        assert account.closed
        assert account.charged == 4
        with guard._store.transaction() as books:
            assert books.answer(account.terms.task) is None
    question = Question(report["card"]["digest"], account.terms.digest, 3, account.last.model)
    with pytest.raises(Refused, match="has ended"):
        guard.charge(question, cost=0.0)


def test_samples_of_zero_are_refused_and_not_taken_for_the_default() -> None:
    with pytest.raises(InvalidInput, match="samples must be"):
        demo_trade(DemoSettings(data="synthetic:d=6,n=4000", samples=0))
