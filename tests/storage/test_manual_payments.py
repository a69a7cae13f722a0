"""Money in and out by hand: each payment counts once, and a broken line is named."""

import fcntl
import json
import os
import threading

import pytest

from fedbourse.app.configuration import MarketSettings
from fedbourse.errors import CannotWrite, InvalidFile, InvalidInput, NotFound
from fedbourse.market.commands.payouts import Payout
from fedbourse.payments import manual
from fedbourse.payments.adapters import PAYMENT_ADAPTERS
from fedbourse.payments.manual import ManualPayments
from fedbourse.units import MicroCredits


def test_an_adapter_is_chosen_by_its_name(tmp_path) -> None:
    assert isinstance(PAYMENT_ADAPTERS.choose("manual")(tmp_path), ManualPayments)
    MarketSettings(folder=tmp_path).check()
    for settings, sentence in (
        (MarketSettings(payments="bank"), "payments must be one of manual; found 'bank'"),
        (MarketSettings(payments="bank", demo=True), "payments that are not manual"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            settings.check()


def came(folder, *lines: str | bytes) -> ManualPayments:
    payments = ManualPayments(folder)
    raw = [line if isinstance(line, bytes) else line.encode() for line in lines]
    (folder / "received.jsonl").write_bytes(b"\n".join(raw))
    return payments


def line(
    reference: str = "r-1", party: str = "buyer:acme", credits: object = "12.5", **more
) -> str:
    return json.dumps({"reference": reference, "party": party, "credits": credits, **more})


def payout(name: str, micro: int = 1_500_000, to: str = "IBAN é") -> Payout:
    return Payout(name, "owner:ann", MicroCredits(micro), to, at_ms=7)


def paid(folder) -> list[dict]:
    return [json.loads(row) for row in (folder / "payouts.jsonl").read_bytes().splitlines()]


def test_what_came_in_is_found_by_its_reference(tmp_path) -> None:
    payments = came(tmp_path, line(), "", line("r-2", "owner:ann", "0.000001", note="cash"), "\r")
    assert payments.received("r-1") == ("buyer:acme", 12_500_000)
    assert payments.received("r-2") == ("owner:ann", 1)


def test_a_line_is_seen_as_soon_as_it_is_written(tmp_path) -> None:
    payments = ManualPayments(tmp_path / "new" / "folder")
    with pytest.raises(NotFound, match="'r-1' has come in"):
        payments.received("r-1")
    (tmp_path / "new" / "folder" / "received.jsonl").write_text(line())
    assert payments.received("r-1") == ("buyer:acme", 12_500_000)
    assert (tmp_path / "new" / "folder").stat().st_mode & 0o777 == 0o700


def test_a_file_that_stays_is_read_once_and_one_that_changes_again(tmp_path, monkeypatch) -> None:
    payments = came(tmp_path, *(line(f"bank-{number}", credits="1") for number in range(50)))
    file = tmp_path / "received.jsonl"
    os.utime(file, (1, 1))  # long ago
    parsed = []
    read = manual._payment
    monkeypatch.setattr(manual, "_payment", lambda *given: parsed.append(given) or read(*given))
    for number in range(50):
        assert payments.received(f"bank-{number}") == ("buyer:acme", 1_000_000)
    assert len(parsed) == 50
    for credits in (2, 3, 4):  # in the same moment, and as long as before
        file.write_text(line("bank-7", credits=str(credits)))
        assert payments.received("bank-7") == ("buyer:acme", credits * 1_000_000)
    with pytest.raises(NotFound):
        payments.received("bank-8")


def test_the_same_line_twice_is_one_payment_and_another_one_is_refused(tmp_path) -> None:
    assert came(tmp_path, line(), line(credits="12.50")).received("r-1")[1] == 12_500_000
    for other in (line(credits="12.6"), line(party="buyer:b")):
        with pytest.raises(InvalidFile, match="lines 1 and 3 differ"):
            came(tmp_path, line(), line("r-9"), other).received("r-9")


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ("{", "line 2: the body is not valid JSON"),
        (b'{"reference": "\xff"}', "line 2: a body must be UTF-8"),
        ("[1]", "line 2 must be an object with reference, party and credits"),
        (line(more=1), "line 2 must be an object"),
        ('{"reference": "r", "party": "buyer:a"}', "line 2 must be an object"),
        ('{"reference": "r", "reference": "s"}', "line 2: .*twice"),
        (line(reference=""), "line 2: the reference"),
        (line(reference=7), "line 2: the reference"),
        (line(party="acme"), "line 2: the party"),
        (line(party="escrow:1"), "line 2: the party"),
        *[
            (line(credits=text), "line 2: the credits")
            for text in (1, 1.5, "", "0", "-1", "1e3", "1.0000001", "NaN", "1,5", " 1", "9" * 11)
        ],
        (line(credits="9007199254.740992"), "line 2: the credits"),
        (line(credits="٣"), "line 2: the credits"),
    ],
)
def test_a_broken_line_stops_every_deposit_and_is_named(tmp_path, broken, sentence) -> None:
    with pytest.raises(InvalidFile, match=sentence):
        came(tmp_path, line(), broken).received("r-1")


def test_files_of_other_systems_are_read(tmp_path) -> None:
    content = b"\xef\xbb\xbf" + line().encode() + b"\r\n" + line("r-2").encode() + b"\r\n"
    assert came(tmp_path, content).received("r-2") == ("buyer:acme", 12_500_000)
    with pytest.raises(InvalidFile, match="line 1: a body must be UTF-8"):
        came(tmp_path, line().encode("utf-16")).received("r-1")


def test_a_file_that_cannot_be_read_is_named(tmp_path) -> None:
    (tmp_path / "received.jsonl").mkdir()
    with pytest.raises(InvalidFile, match=r"received\.jsonl cannot be read: Is a directory"):
        ManualPayments(tmp_path).received("r-1")


def test_a_payout_is_written_once_whoever_asks(tmp_path) -> None:
    first, second = ManualPayments(tmp_path), ManualPayments(tmp_path)
    for payments in (first, second, first, second):
        payments.pay(payout("a"))
        payments.pay(payout("b", 1))
    assert [row["id"] for row in paid(tmp_path)] == ["a", "b"]
    assert [ManualPayments(tmp_path).has_paid(name) for name in "abc"] == [True, True, False]
    assert paid(tmp_path)[0] == {
        "id": "a",
        "party": "owner:ann",
        "credits": "1.500000",
        "destination": "IBAN é",
        "at_ms": 7,
    }
    assert (tmp_path / "payouts.jsonl").stat().st_mode & 0o777 == 0o600


def test_many_at_once_write_each_payout_once(tmp_path) -> None:
    names = [f"p{number}" for number in range(20)]
    writers = [ManualPayments(tmp_path) for _ in range(4)]
    threads = [
        threading.Thread(target=lambda w=writer: [w.pay(payout(name)) for name in names])
        for writer in writers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(row["id"] for row in paid(tmp_path)) == sorted(names)


def test_a_payout_waits_for_the_one_that_is_being_written(tmp_path) -> None:
    payments = ManualPayments(tmp_path)
    payments.pay(payout("a"))
    with (tmp_path / "payouts.jsonl").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        thread = threading.Thread(target=lambda: payments.pay(payout("b")))
        thread.start()
        thread.join(0.2)
        assert [row["id"] for row in paid(tmp_path)] == ["a"]
    thread.join()
    assert [row["id"] for row in paid(tmp_path)] == ["a", "b"]


def test_a_crash_at_any_byte_of_a_line_pays_once(tmp_path) -> None:
    ManualPayments(tmp_path).pay(payout("a"))
    before = (tmp_path / "payouts.jsonl").read_bytes()
    ManualPayments(tmp_path).pay(payout("b"))
    after = (tmp_path / "payouts.jsonl").read_bytes()
    for cut in range(len(before), len(after) + 1):
        (tmp_path / "payouts.jsonl").write_bytes(after[:cut])
        ManualPayments(tmp_path).pay(payout("b"))
        assert (tmp_path / "payouts.jsonl").read_bytes() == after


def test_a_line_changed_by_hand_stops_payouts(tmp_path) -> None:
    ManualPayments(tmp_path).pay(payout("a"))
    with (tmp_path / "payouts.jsonl").open("a") as file:
        file.write("done!\n")
    with pytest.raises(CannotWrite, match=r"payouts\.jsonl, line 2 is not a payout"):
        ManualPayments(tmp_path).pay(payout("b"))


def test_a_full_disk_leaves_no_half_line(tmp_path, monkeypatch) -> None:
    payments = ManualPayments(tmp_path)
    payments.pay(payout("a"))
    before = (tmp_path / "payouts.jsonl").read_bytes()
    real = os.pwrite
    calls = []

    def full(number: int, content: bytes, at: int) -> int:
        calls.append(at)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return real(number, content[:9], at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(CannotWrite, match="No space left on device"):
            payments.pay(payout("b"))
    assert (tmp_path / "payouts.jsonl").read_bytes() == before
    payments.pay(payout("b"))
    assert [row["id"] for row in paid(tmp_path)] == ["a", "b"]


def test_a_place_that_cannot_be_written_is_named(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="cannot be created"):
        ManualPayments(tmp_path / "file" / "under")
    (tmp_path / "payouts.jsonl").mkdir()
    with pytest.raises(CannotWrite, match=r"payouts\.jsonl cannot be written"):
        ManualPayments(tmp_path).pay(payout("a"))
