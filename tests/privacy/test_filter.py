"""Whatever a server asks, and whatever breaks: no device spends more than it sold."""

import os
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from threading import Barrier

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from examples import examples
from fedbourse.device import SpendStore
from fedbourse.errors import CannotWrite, FedbourseError, InvalidFile, InvalidInput, Refused
from fedbourse.privacy.filter import Account, Filter, RoundRequest
from fedbourse.privacy.memory_store import MemoryStore
from fedbourse.privacy.terms import Terms

# Budgets that no double divides evenly by the rounds; together they do not fit under the cap.
CAP = 1.25
TERMS = {
    terms.task: terms
    for terms in (
        Terms(task="small", rho=0.1, rounds=3, dimension=2, samples=5),
        Terms(task="large", rho=1.0, rounds=7, dimension=2, samples=5),
        Terms(task="once", rho=0.3, rounds=1, dimension=2, samples=5),
    )
}
SMALL, LARGE, ONCE = TERMS.values()


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryStore()
    else:
        with closing(SpendStore(tmp_path / "spend.db")) as opened:
            yield opened


@pytest.fixture
def guard(store) -> Filter:
    return Filter(store, lifetime_cap=CAP)


def ask(terms: Terms, number: int, model: str = "model") -> RoundRequest:
    return RoundRequest(terms.task, terms.digest, number, model)


def never() -> bytes:
    raise AssertionError("noise was drawn for a round request that was refused or served before")


def delivered(guard: Filter, round_request: RoundRequest, update: bytes = b"update") -> bytes:
    return guard.update(round_request, lambda: update, cost=TERMS[round_request.task].round_rho)


def refusal(guard: Filter, round_request: RoundRequest, *, cost: float = 0.0) -> str:
    """Return the reason of a refusal that costs nothing and draws nothing."""
    before = guard.accounts()
    with pytest.raises(Refused) as caught:
        guard.update(round_request, never, cost=cost)
    assert guard.accounts() == before
    return caught.value.reason


# One law a test, over both stores.


def test_a_repeated_round_request_gets_the_same_update_and_costs_nothing(guard) -> None:
    guard.agree(SMALL)
    assert delivered(guard, ask(SMALL, 0), b"first") == b"first"
    before = guard.accounts()
    assert guard.update(ask(SMALL, 0), never, cost=SMALL.round_rho) == b"first"
    assert guard.accounts() == before


def test_all_rounds_fit_the_budget_and_no_more(guard) -> None:
    guard.agree(LARGE)
    for number in range(LARGE.rounds):
        delivered(guard, ask(LARGE, number))
    (account,) = guard.accounts()
    assert account.charged == LARGE.rounds
    assert Fraction(1) - Fraction(2**-50) < account.spent <= Fraction(1)
    assert refusal(guard, ask(LARGE, LARGE.rounds)) == "beyond-rounds"


@pytest.mark.parametrize("number", [-1, 3, 10**30])
def test_a_round_that_was_not_sold_is_refused(guard, number: int) -> None:
    guard.agree(SMALL)
    assert refusal(guard, ask(SMALL, number)) == "beyond-rounds"


def test_a_second_model_for_a_round_is_refused(guard) -> None:
    guard.agree(SMALL)
    delivered(guard, ask(SMALL, 0))
    assert refusal(guard, ask(SMALL, 0, "other")) == "other-model"


def test_a_round_that_is_over_is_refused(guard) -> None:
    guard.agree(SMALL)
    delivered(guard, ask(SMALL, 1))
    assert refusal(guard, ask(SMALL, 0)) == "past-round"


@pytest.mark.parametrize(
    "cost", [SMALL.round_rho * (1 + 2**-52), 1e300, float("inf"), float("nan")]
)
def test_noise_that_costs_more_than_a_round_may_is_refused(guard, cost: float) -> None:
    guard.agree(SMALL)
    assert refusal(guard, ask(SMALL, 0), cost=cost) == "over-budget"


def test_an_account_that_used_up_its_rounds_is_refused_whatever_it_remembers(store) -> None:
    with store.transaction() as books:
        books.put(Account(SMALL, charged=SMALL.rounds))
    assert refusal(Filter(store, lifetime_cap=CAP), ask(SMALL, 0)) == "over-budget"


def test_a_budget_beyond_the_lifetime_cap_is_refused_before_it_is_reserved(guard) -> None:
    guard.agree(LARGE)
    guard.agree(SMALL)
    before = guard.accounts()
    with pytest.raises(Refused, match=r"0\.3 does not fit under .* of which 1\.1 is") as caught:
        guard.agree(ONCE)
    assert caught.value.reason == "over-cap"
    assert guard.accounts() == before
    assert refusal(guard, ask(ONCE, 0)) == "unknown-task"


def test_a_cap_can_be_used_to_its_last_bit(store) -> None:
    guard = Filter(store, lifetime_cap=SMALL.round_rho)
    with pytest.raises(Refused, match="does not fit"):
        guard.agree(SMALL)
    Filter(store, lifetime_cap=SMALL.rho).agree(SMALL)
    delivered(guard, ask(SMALL, 0))
    assert refusal(guard, ask(SMALL, 1)) == "over-cap"


def test_the_last_bit_of_the_cap_counts(store) -> None:
    tenths = [replace(SMALL, task=str(i)) for i in range(3)]  # 0.1 + 0.1 + 0.1 > 0.3, exactly
    guard = Filter(store, lifetime_cap=0.3)
    guard.agree(tenths[0])
    guard.agree(tenths[1])
    with pytest.raises(Refused, match="does not fit"):
        guard.agree(tenths[2])


def test_a_cap_that_was_lowered_stops_what_was_reserved(store) -> None:
    Filter(store, lifetime_cap=CAP).agree(LARGE)
    guard = Filter(store, lifetime_cap=2.5 * LARGE.round_rho)
    delivered(guard, ask(LARGE, 0))
    delivered(guard, ask(LARGE, 1))
    assert refusal(guard, ask(LARGE, 2)) == "over-cap"
    assert guard.update(ask(LARGE, 1), never, cost=0.0) == b"update"


@pytest.mark.parametrize(
    "changed", [{"rho": 0.2}, {"rounds": 4}, {"dimension": 3}, {"samples": 6}, {"clip": 1.5}]
)
def test_changed_terms_are_refused(guard, changed) -> None:
    guard.agree(SMALL)
    guard.agree(SMALL)
    other = replace(SMALL, **changed)
    before = guard.accounts()
    with pytest.raises(Refused) as caught:
        guard.agree(other)
    assert caught.value.reason == "changed-terms"
    assert guard.accounts() == before == [Account(SMALL)]
    assert refusal(guard, ask(other, 0)) == "changed-terms"


def test_an_unknown_task_is_refused(guard) -> None:
    assert refusal(guard, ask(SMALL, 0)) == "unknown-task"
    with pytest.raises(Refused) as caught:
        guard.close("small")
    assert caught.value.reason == "unknown-task"


def test_closing_ends_the_updates_and_frees_what_was_not_spent(guard) -> None:
    guard.agree(LARGE)
    delivered(guard, ask(LARGE, 0))
    with pytest.raises(Refused, match="lifetime cap"):
        guard.agree(ONCE)
    guard.close("large")
    guard.close("large")
    assert refusal(guard, ask(LARGE, 0)) == "closed"
    assert refusal(guard, ask(LARGE, 1)) == "closed"
    guard.agree(ONCE)
    guard.agree(LARGE)  # the same terms: known, and still closed
    assert refusal(guard, ask(LARGE, 1)) == "closed"
    committed = sum(account.committed for account in guard.accounts())
    assert committed == Fraction(LARGE.round_rho) + Fraction(ONCE.rho)


def test_only_the_update_charged_for_last_is_kept(guard) -> None:
    guard.agree(SMALL)
    for wrong in (ask(SMALL, 0), ask(LARGE, 0)):
        with pytest.raises(Refused) as caught:
            guard.keep(wrong, b"x")
        assert caught.value.reason == "not-charged"
    guard.charge(ask(SMALL, 0), cost=0.0)
    with pytest.raises(Refused):
        guard.keep(ask(SMALL, 0, "other"), b"x")
    guard.close("small")
    with pytest.raises(Refused) as caught:
        guard.keep(ask(SMALL, 0), b"too late")
    assert caught.value.reason == "closed"


def test_a_draw_that_fails_leaves_the_round_charged_and_open_to_its_model_alone(guard) -> None:
    guard.agree(SMALL)
    with pytest.raises(ZeroDivisionError):
        guard.update(ask(SMALL, 0), lambda: bytes(1 // 0), cost=0.0)
    (account,) = guard.accounts()
    assert account.charged == 1
    assert refusal(guard, ask(SMALL, 0, "other")) == "other-model"
    assert delivered(guard, ask(SMALL, 0), b"again") == b"again"
    assert guard.update(ask(SMALL, 0), never, cost=0.0) == b"again"
    assert guard.accounts() == [account]


def test_an_empty_update_is_an_update(guard) -> None:
    guard.agree(SMALL)
    assert delivered(guard, ask(SMALL, 0), b"") == b""
    assert guard.update(ask(SMALL, 0), never, cost=0.0) == b""


def test_a_transaction_that_fails_leaves_nothing(store) -> None:
    def fails() -> None:
        with store.transaction() as books:
            books.put(Account(SMALL))
            books.put_update("small", b"update")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    with store.transaction() as books:
        assert list(books.accounts()) == []
        assert books.update("small") is None


def test_names_of_any_script_are_kept_as_they_are(guard) -> None:
    names = ["späte Flüge", "遅延便", "a\0b", "'; DROP TABLE account; --", " "]
    for name in names:
        guard.agree(replace(SMALL, task=name, rho=1e-3))
    assert sorted(account.terms.task for account in guard.accounts()) == sorted(names)


def test_a_transaction_has_the_books_to_itself(store, guard) -> None:
    with ThreadPoolExecutor(1) as thread:
        with store.transaction() as books:
            books.put(Account(LARGE))
            agreed = thread.submit(guard.agree, ONCE)
            assert not wait([agreed], timeout=0.1).done
        with pytest.raises(Refused, match="does not fit"):
            agreed.result(timeout=10)


def test_of_two_draws_for_a_round_request_the_first_stored_is_the_one_to_leave(guard) -> None:
    guard.agree(SMALL)
    for _ in range(2):
        assert guard.charge(ask(SMALL, 0), cost=0.0) is None
    assert guard.keep(ask(SMALL, 0), b"first") == b"first"
    assert guard.keep(ask(SMALL, 0), b"second") == b"first"


def test_threads_that_share_a_filter_let_one_update_a_round_leave(guard) -> None:
    terms = Terms(task="shared", rho=0.1, rounds=15, dimension=2, samples=5)
    guard.agree(terms)
    barrier = Barrier(8, timeout=10)

    def serve(thread: int) -> list[tuple[int, bytes]]:
        sent = []
        for number in range(terms.rounds):
            barrier.wait()
            model = "model" if thread % 4 else "other"
            with suppress(Refused):
                update = guard.update(
                    ask(terms, number, model), partial(os.urandom, 8), cost=terms.round_rho
                )
                sent.append((number, update))
        return sent

    with ThreadPoolExecutor(8) as threads:
        sent = {line for lines in threads.map(serve, range(8)) for line in lines}
    (account,) = guard.accounts()
    assert account.charged == terms.rounds
    assert sorted(number for number, _ in sent) == list(range(terms.rounds))


# Anything in any order, against a model.


@dataclass
class Sold:
    """What the model knows of a task."""

    terms: Terms
    charged: int = 0
    last: tuple[int, str] = (-1, "")
    update: bytes | None = None
    closed: bool = False

    @property
    def spent(self) -> Fraction:
        return self.charged * Fraction(self.terms.round_rho)


class FilterMachine(RuleBasedStateMachine):
    """Several tasks, and a server that asks whatever it likes."""

    tasks = st.sampled_from(list(TERMS))
    models = st.sampled_from(["model", "model", "other"])
    now_and_then = st.sampled_from([False] * 9 + [True])

    def __init__(self) -> None:
        super().__init__()
        self.sold: dict[str, Sold] = {}
        self.refused: list[Refused] = []  # kept, as a program may: they must hold nothing open
        self.cap = CAP
        self.start()

    def start(self) -> None:
        self.store = MemoryStore()
        self.guard = Filter(self.store, lifetime_cap=self.cap)

    def restart(self) -> None:
        self.guard = Filter(self.store, lifetime_cap=self.cap)

    def expect(self, reason: str | None, act) -> bytes | None:
        """Act; the outcome must be the model's. A refusal must change nothing."""
        before = self.guard.accounts()
        if reason is None:
            return act()
        with pytest.raises(Refused) as caught:
            act()
        self.refused.append(caught.value)
        assert caught.value.reason == reason
        assert self.guard.accounts() == before
        return None

    @initialize(first=st.permutations(list(TERMS)))
    def sell(self, first: list[str]) -> None:
        for task in first[:2]:
            self.agree(task, changed=False)

    @rule(task=tasks, changed=now_and_then)
    def agree(self, task: str, changed: bool) -> None:
        terms = replace(TERMS[task], clip=2.0) if changed else TERMS[task]
        reason = None
        known = self.sold.get(task)
        if known is None:
            held = [s.spent if s.closed else Fraction(s.terms.rho) for s in self.sold.values()]
            if sum(held) + Fraction(terms.rho) > Fraction(self.cap):
                reason = "over-cap"
        elif known.terms != terms:
            reason = "changed-terms"
        self.expect(reason, lambda: self.guard.agree(terms))
        if reason is None and known is None:
            self.sold[task] = Sold(terms)

    def reason(
        self, task: str, number: int, model: str, *, changed: bool, expensive: bool
    ) -> str | None:
        """Return why the round request must be refused."""
        sold = self.sold.get(task)
        if sold is None:
            return "unknown-task"
        spent = sum(s.spent for s in self.sold.values())
        again = number == sold.last[0]
        rules = [
            ("changed-terms", changed),
            ("closed", sold.closed),
            ("beyond-rounds", not 0 <= number < sold.terms.rounds),
            ("other-model", again and model != sold.last[1]),
            ("past-round", number < sold.last[0]),
            ("over-budget", expensive and not again),
            ("over-cap", not again and spent + Fraction(sold.terms.round_rho) > Fraction(self.cap)),
        ]
        return next((reason for reason, broken in rules if broken), None)

    @rule(
        task=tasks,
        step=st.sampled_from([1, 1, 0, 0, 2, -1, -9, 9]),
        model=models,
        changed=now_and_then,
        expensive=now_and_then,
        fails=now_and_then,
        update=st.binary(max_size=4),
    )
    def ask(self, *, task, step, model, changed, expensive, fails, update) -> None:
        sold = self.sold.get(task)
        terms, last = (TERMS[task], -1) if sold is None else (sold.terms, sold.last[0])
        number = last + step
        round_request = ask(replace(terms, samples=7) if changed else terms, number, model)
        cost = terms.round_rho * (1.001 if expensive else 1.0)
        reason = self.reason(task, number, model, changed=changed, expensive=expensive)
        if reason is not None:
            self.expect(reason, lambda: self.guard.update(round_request, never, cost=cost))
            return
        assert sold is not None
        if (number, model) != sold.last:
            sold.charged, sold.last, sold.update = sold.charged + 1, (number, model), None
        if sold.update is not None:
            assert self.guard.update(round_request, never, cost=cost) == sold.update
        elif fails:
            with pytest.raises(ZeroDivisionError):
                self.guard.update(round_request, lambda: bytes(1 // 0), cost=cost)
        else:
            sold.update = update
            assert self.guard.update(round_request, lambda: update, cost=cost) == update

    @rule(task=tasks, really=now_and_then)
    def close(self, task: str, really: bool) -> None:
        if not really:
            return
        sold = self.sold.get(task)
        self.expect("unknown-task" if sold is None else None, lambda: self.guard.close(task))
        if sold is not None:
            sold.closed = True

    @rule(task=tasks, number=st.integers(-1, 7), model=models)
    def keep_without_charge(self, task: str, number: int, model: str) -> None:
        sold = self.sold.get(task)
        if sold is None or sold.last != (number, model):
            round_request = ask(TERMS[task], number, model)
            self.expect("not-charged", lambda: self.guard.keep(round_request, b"planted"))

    @rule(cap=st.sampled_from([CAP] * 6 + [0.5, 0.03]))
    def restarted_under_another_cap(self, cap: float) -> None:
        self.cap = cap
        self.restart()

    @invariant()
    def accounts_are_those_of_the_model(self) -> None:
        accounts = {account.terms.task: account for account in self.guard.accounts()}
        assert accounts.keys() == self.sold.keys()
        for task, sold in self.sold.items():
            outcome = accounts[task]
            assert (outcome.terms, outcome.charged, outcome.closed, outcome.spent) == (
                sold.terms,
                sold.charged,
                sold.closed,
                sold.spent,
            )

    @invariant()
    def nothing_is_overspent(self) -> None:
        accounts = self.guard.accounts()
        assert all(account.spent <= Fraction(account.terms.rho) for account in accounts)
        assert sum(account.spent for account in accounts) <= Fraction(CAP)


class FileMachine(FilterMachine):
    """The same with a file, closed and opened again."""

    def start(self) -> None:
        self.folder = Path(mkdtemp())
        self.store = SpendStore(self.folder / "spend.db")
        self.guard = Filter(self.store, lifetime_cap=self.cap)

    def restart(self) -> None:
        self.store.close()  # type: ignore[attr-defined]
        self.store = SpendStore(self.folder / "spend.db")
        super().restart()

    def teardown(self) -> None:
        self.store.close()  # type: ignore[attr-defined]
        shutil.rmtree(self.folder)


TestAnythingInMemory = FilterMachine.TestCase
TestAnythingInMemory.settings = examples(100, stateful_step_count=40, deadline=None)
TestAnythingInAFile = FileMachine.TestCase
TestAnythingInAFile.settings = examples(60, stateful_step_count=40, deadline=None)


# The file.


@pytest.fixture
def file(tmp_path) -> Path:
    """Return the file of a device that sold two tasks and answered twice."""
    file = tmp_path / "device" / "spend.db"
    file.parent.mkdir()
    with closing(SpendStore(file)) as store:
        guard = Filter(store, lifetime_cap=CAP)
        guard.agree(SMALL)
        guard.agree(LARGE)
        delivered(guard, ask(SMALL, 0))
        delivered(guard, ask(LARGE, 0))
    return file


@contextmanager
def opened(file: Path):
    with closing(SpendStore(file)) as store:
        yield Filter(store, lifetime_cap=CAP)


def test_a_restarted_device_remembers(file) -> None:
    with opened(file) as guard:
        assert [account.charged for account in guard.accounts()] == [1, 1]
        assert guard.update(ask(SMALL, 0), never, cost=0.0) == b"update"
        assert refusal(guard, ask(SMALL, 0, "other")) == "other-model"


OPEN = """
import sys
from pathlib import Path
from fedbourse.device import SpendStore
from fedbourse.errors import FedbourseError
try:
    SpendStore(Path(sys.argv[1]))
except FedbourseError as error:
    print(type(error).__name__, getattr(error, "reason", ""), end="")
else:
    print("opened", end="")
"""


def elsewhere(file: Path) -> str:
    """Open the file in another process; return how that ended."""
    command = [sys.executable, "-c", OPEN, str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_a_second_process_is_refused_until_the_first_lets_go(file) -> None:
    with opened(file) as guard:
        assert elsewhere(file) == "Refused in-use"
        with pytest.raises(Refused) as caught:
            SpendStore(file)
        assert caught.value.reason == "in-use"
        delivered(guard, ask(SMALL, 1))
        assert elsewhere(file) == "Refused in-use"
    assert elsewhere(file) == "opened"


def test_others_may_read_what_one_process_sells_but_not_write(file) -> None:
    with opened(file) as guard, closing(SpendStore(file, read_only=True)) as seen:
        delivered(guard, ask(SMALL, 1))
        reader = Filter(seen, lifetime_cap=CAP)
        assert reader.accounts() == guard.accounts()
        with pytest.raises(CannotWrite, match="readonly"):
            reader.agree(replace(SMALL, task="another"))
        assert reader.accounts() == guard.accounts()
    with closing(SpendStore(file, read_only=True)) as seen:  # also where nobody sells
        assert len(Filter(seen, lifetime_cap=CAP).accounts()) == 2


def test_a_store_that_is_not_there_cannot_be_read(tmp_path) -> None:
    with pytest.raises(CannotWrite, match="unable to open"):
        SpendStore(tmp_path / "spend.db", read_only=True)
    assert not list(tmp_path.iterdir())


def test_nobody_else_can_read_what_was_sold(tmp_path) -> None:
    before = os.umask(0)
    try:
        with closing(SpendStore(tmp_path / "spend.db")) as store:
            Filter(store, lifetime_cap=CAP).agree(SMALL)
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}
    assert "spend.db-wal" in modes


def test_every_commit_reaches_the_disk(file) -> None:
    with closing(SpendStore(file)) as store:
        pragmas = {"journal_mode": b"wal", "synchronous": 2}
        for name, value in pragmas.items():
            assert store._connection.execute(f"PRAGMA {name}").fetchone() == (value,)


def test_an_empty_file_is_a_device_that_never_sold(tmp_path) -> None:
    (tmp_path / "spend.db").touch()
    with opened(tmp_path / "spend.db") as guard:
        assert guard.accounts() == []


def foreign(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE account (task TEXT)")
        connection.execute("PRAGMA user_version = 1")
        connection.commit()


def newer(file: Path) -> None:
    SpendStore(file).close()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 5")


def no_database(file: Path) -> None:
    file.write_bytes(b"These are my holiday pictures. " * 100)


@pytest.mark.parametrize("make", [foreign, newer, no_database])
def test_a_file_that_is_none_of_ours_is_refused_and_left_as_it_was(make, tmp_path) -> None:
    file = tmp_path / "spend.db"
    make(file)
    before = file.read_bytes()
    with pytest.raises(InvalidFile, match="not a spend store"):
        SpendStore(file)
    assert file.read_bytes() == before
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"spend.db", "spend.db.lock"}


def used(file: Path) -> None:
    """Use all of a store: open it, read it, write to it."""
    with opened(file) as guard:
        guard.accounts()
        guard.agree(SMALL)
        with suppress(Refused):
            delivered(guard, ask(SMALL, 1))


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_gets_a_sentence_and_never_a_traceback(data, file) -> None:
    whole = file.read_bytes()
    try:
        if data.draw(st.booleans()):
            damaged = whole[: data.draw(st.integers(1, len(whole) - 1))]
        else:
            at = data.draw(st.sampled_from([i for i, byte in enumerate(whole) if byte]))
            damaged = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))])
            damaged += whole[at + 1 :]
        file.write_bytes(damaged)
        with suppress(FedbourseError):
            used(file)
    finally:
        for path in file.parent.iterdir():
            path.unlink()
        file.write_bytes(whole)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_truncated_file_forgets_nothing_in_silence(file, share: float) -> None:
    with file.open("r+b") as handle:
        handle.truncate(int(file.stat().st_size * share))
    with pytest.raises(InvalidFile, match="damaged"):
        used(file)


@pytest.mark.parametrize("terms", ["{", "[]", "{}", '{"task": "small"}', "\ud800"])
def test_an_account_that_cannot_be_read_is_damage(file, terms: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP TRIGGER spend_never_shrinks")
        body = terms.encode("utf-8", "surrogatepass")
        connection.execute(
            "UPDATE account SET terms = CAST(? AS TEXT) WHERE task = 'small'", (body,)
        )
        connection.commit()
    with opened(file) as guard, pytest.raises(InvalidFile, match="is damaged"):
        guard.accounts()


def test_a_name_that_is_no_text_is_refused(file) -> None:
    # JSON can spell half of a surrogate pair, so a server can send one.
    with opened(file) as guard:
        with pytest.raises(InvalidInput, match=r"must be text; found '\\ud800'"):
            guard.agree(replace(SMALL, task="\ud800"))
        with pytest.raises(InvalidInput, match="must be text"):
            guard.update(replace(ask(SMALL, 1), task="\ud800"), never, cost=0.0)
        delivered(guard, ask(SMALL, 1, "\ud800"))
        delivered(guard, ask(SMALL, 2))


def test_a_folder_that_is_not_there_or_no_folder_is_named(tmp_path) -> None:
    with pytest.raises(CannotWrite, match=r"spend\.db: No such file"):
        SpendStore(tmp_path / "nowhere" / "spend.db")
    (tmp_path / "plain").touch()
    with pytest.raises(CannotWrite, match=r"spend\.db: Not a directory"):
        SpendStore(tmp_path / "plain" / "spend.db")
    with pytest.raises(CannotWrite, match="unable to open"):
        SpendStore(tmp_path)


@contextmanager
def powerless():
    """Be nobody for a while where the tests run as root, whom no permission stops."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("name", ["spend.db", "new.db"])
def test_a_folder_without_permission_to_write_is_named(file, name: str) -> None:
    with TemporaryDirectory() as made:
        folder = Path(made)
        shutil.copy(file, folder / "spend.db")
        (folder / "spend.db").chmod(0o444)
        folder.chmod(0o555)
        with powerless(), pytest.raises(CannotWrite, match=name):
            SpendStore(folder / name)
        folder.chmod(0o700)


@pytest.mark.parametrize("bytes_left", [0, 100, 1000, 4000])
def test_a_full_disk_stops_the_charge_and_the_update(file, bytes_left: int) -> None:
    with opened(file) as guard:
        before = guard.accounts()
        log = file.with_name("spend.db-wal")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + bytes_left, limits[1]))
        try:
            with pytest.raises(CannotWrite, match="disk"):
                guard.update(ask(SMALL, 1), never, cost=0.0)
            assert guard.accounts() == before
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        delivered(guard, ask(SMALL, 1), b"there is space again")
    with opened(file) as guard:
        assert guard.update(ask(SMALL, 1), never, cost=0.0) == b"there is space again"


def test_an_update_too_large_for_the_disk_does_not_leave(file) -> None:
    with closing(SpendStore(file)) as store:
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        guard = Filter(store, lifetime_cap=CAP)
        with pytest.raises(CannotWrite, match="full"):
            delivered(guard, ask(SMALL, 1), bytes(10**6))
        assert guard.accounts()[0].charged == 2
        assert delivered(guard, ask(SMALL, 1), b"short") == b"short"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE account SET charged = 0",
        "UPDATE account SET charged = charged - 1 WHERE task = 'small'",
        "UPDATE account SET charged = 4 WHERE task = 'small'",
        "UPDATE account SET charged = NULL",
        "UPDATE account SET rounds = 100",
        "UPDATE account SET terms = '{}'",
        "UPDATE account SET task = 'renamed' WHERE task = 'large'",
        "UPDATE account SET closed = 2",
        "DELETE FROM account",
        "DELETE FROM account WHERE task = 'small'",
        "REPLACE INTO account SELECT task, terms, rounds, 0, NULL, 0 FROM account",
        "INSERT INTO account SELECT task, terms, rounds, 0, NULL, 0 FROM account",
        "INSERT OR REPLACE INTO account SELECT task, '{}', rounds, 2, NULL, 0 FROM account",
        "INSERT INTO account VALUES ('new', '{}', 3, 4, NULL, 0)",
        "INSERT INTO account VALUES ('new', '{}', 3, -1, NULL, 0)",
    ],
)
def test_not_even_raw_sql_makes_spend_smaller(file, statement: str) -> None:
    with opened(file) as guard:
        before = guard.accounts()
    with closing(sqlite3.connect(file)) as connection:
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(statement)
        connection.commit()
    with opened(file) as guard:
        assert guard.accounts() == before


def test_a_closed_task_stays_closed_whatever_sql_says(file) -> None:
    with opened(file) as guard:
        guard.close("small")
    with closing(sqlite3.connect(file)) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute("UPDATE account SET closed = 0")


@pytest.mark.parametrize("name", ["rounds", "dimension", "samples"])
def test_terms_count_no_further_than_a_double_does(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name} must be"):
        replace(SMALL, **{name: 2.0**53 + 2})


@given(st.floats(1e-300, 1e300), st.integers(1, 10**6))
def test_all_rounds_together_cost_the_budget_at_most_and_nearly(rho: float, rounds: int) -> None:
    terms = replace(SMALL, rho=rho, rounds=rounds)
    spent = Account(terms, charged=rounds).spent
    assert Fraction(rho) * (1 - Fraction(2) ** -50) <= spent <= Fraction(rho)
