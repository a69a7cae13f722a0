"""A whole trade from the command line: money conserved, budgets kept, a page that needs nobody."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from epsilon_units import check_epsilon_units
from fedbourse import Accuracy, Training, epsilon
from fedbourse.cli import main
from fedbourse.learning.data import load
from fedbourse.learning.records import Scaling
from fedbourse.privacy.loss import PrivacyLoss

SMALL = ["--data", "synthetic:d=6,n=4000", "--samples", "60", "--rounds", "8", "--reward", "1"]


@pytest.fixture
def demo(capsys, tmp_path):
    def run(*arguments: str, folder: str = "out"):
        code = main(["demo", *arguments, "--out", str(tmp_path / folder)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def trade(demo, *arguments: str):
    code, out, _ = demo(*arguments, "--json")
    assert code == 0
    return json.loads(out)


@pytest.fixture(scope="module")
def flights(tmp_path_factory):
    """The front door: the demo as a newcomer runs it."""
    folder = tmp_path_factory.mktemp("demo")
    assert main(["demo", "--out", str(folder)]) == 0
    return folder, json.loads((folder / "report.json").read_text())


@pytest.mark.slow
def test_the_default_trade_buys_a_model_worth_having(flights) -> None:
    _, report = flights
    accuracy = report["accuracy"]
    reference = accuracy["references"]["scikit-learn on all participants' records"]
    assert reference - 0.03 < accuracy["measured"] < reference + 0.02
    assert accuracy["measured"] > accuracy["chance"] + 0.1
    assert set(accuracy["predicted"]) == {"paper", "population", "averaged", "precision"}
    assert report["card"]["samples"] == 1000
    assert 2 <= report["participants"] < report["interested"]


@pytest.mark.slow
def test_the_default_trade_shows_what_a_device_without_data_earns(flights) -> None:
    folder, report = flights
    without, with_evidence = report["comparison"]
    check_comparison(report)
    assert without["without_data_micro"] > 0.85 * report["money"]["reward_micro"]
    assert without["accuracy"] < with_evidence["accuracy"] - 0.05
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<h2>What if a device has no data?</h2>" in page
    assert '0<span class="badge">no data</span></td><td class="text">dismissed in round 1' in page
    assert f"{100 * without['accuracy']:.1f} %" in page


@pytest.mark.slow
def test_the_page_stands_alone_and_shows_every_participant(flights) -> None:
    folder, report = flights
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=[\"'](?!#)", page)
    assert "<script" not in page
    assert "url(http" not in page
    assert "@import" not in page
    assert page.count("<svg") == 3
    for owner in report["owners"]:
        assert f"<td>{owner['owner']}<" in page
        loss = PrivacyLoss.of(owner["spent"], samples=report["card"]["samples"])
        assert f">{loss.one_record_text}</td>" in page
        assert f">{loss.whole_owner_text}</td>" in page
    check_epsilon_units(page)
    for level in report["accuracy"]["predicted"].values():
        assert f"{100 * level:.2f}" in page


def check_comparison(report) -> None:
    """The device without data is paid by the paper's rule alone, and nobody gains from it."""
    without, with_evidence = report["comparison"]
    payment = report["owners"][0]["payment_micro"]
    assert report["without_data"] == [report["owners"][0]["owner"]] == [0]
    assert without["without_data_micro"] == payment
    assert with_evidence["without_data_micro"] == 0
    assert with_evidence["honest_micro"] == without["honest_micro"]
    assert (without["fund_micro"], with_evidence["fund_micro"]) == (0, payment)
    for each in report["comparison"]:
        parts = each["without_data_micro"] + each["honest_micro"] + each["fund_micro"]
        assert parts == report["money"]["reward_micro"]
    assert report["accuracy"]["measured"] == with_evidence["accuracy"]
    evidence, money = report["evidence"], report["money"]
    assert (evidence["stands"], evidence["dismissed"]) == (True, 1)
    assert evidence["held_micro"] == evidence["released_micro"] + evidence["forfeited_micro"]
    assert evidence["released_micro"] == money["earned_micro"]
    assert 0 < evidence["forfeited_micro"] <= money["fund_micro"]


def test_a_device_without_data_is_paid_by_the_papers_rule_alone(demo, tmp_path) -> None:
    reports, pages = [], []
    for options in ([], ["--no-evidence"]):
        code, out, err = demo(*SMALL, *options)
        assert code == 0
        reports.append(json.loads((tmp_path / "out" / "report.json").read_text()))
        pages.append((tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
        if not options:
            assert re.search(r"the market's fund +0\.000000 +0\.\d{6}\n", out)
            assert re.search(r"\n +0 .* 0\.000000 .* dismissed in round \d", out)
            assert "the same trade without evidence, to compare" in err
    assert "with evidence" not in out + err
    with_evidence, without = reports
    check_comparison(with_evidence)
    (paid,) = without["comparison"]
    assert paid == with_evidence["comparison"][0]
    assert without["evidence"] is without["card"]["evidence"] is None
    assert without["owners"][0]["earned_micro"] == without["owners"][0]["payment_micro"]
    assert [page.count("<polyline") for page in pages] == [2, 1]
    assert "The card has no evidence, so the market pays for noise." in pages[1]


def test_a_majority_without_data_makes_evidence_void_and_is_paid(demo) -> None:
    report = trade(demo, *SMALL, "--without-data", "3")
    assert report["without_data"] == [owner["owner"] for owner in report["owners"]] == [0, 1, 2]
    assert (report["evidence"]["stands"], report["evidence"]["dismissed"]) == (False, 0)
    assert {owner["finding"]["verdict"] for owner in report["owners"]} == {"void"}
    assert report["evidence"]["released_micro"] == report["money"]["earned_micro"] > 900_000
    assert set(report["accuracy"]["references"]) == {"guessing the commonest class"}


def test_the_terminal_page_says_who_was_paid_what(demo) -> None:
    code, out, err = demo(*SMALL, "--without-data", "0")
    assert code == 0
    assert "without data" not in out
    assert "cap's rho" in out
    assert "not the ratio of two epsilons" in out
    check_epsilon_units(out)
    assert "predicted  paper" in out
    assert "reward 1.000000 = earned 1.000000 + refunded 0.000000" in out
    assert "report.html" in out
    assert "none is asked for its value" in err
    assert "it protects nobody" in out


@pytest.mark.slow
@pytest.mark.parametrize("dropout", ["0", "0.3", "1"])
@pytest.mark.parametrize("aggregation", ["equal", "precision"])
def test_money_is_conserved_and_budgets_are_kept(demo, dropout, aggregation) -> None:
    report = trade(
        demo, *SMALL, "--dropout", dropout, "--aggregation", aggregation, "--without-data", "0"
    )
    money = report["money"]
    assert money["payments_micro"] == money["reward_micro"] == 1_000_000
    assert money["earned_micro"] + money["fund_micro"] == money["reward_micro"]
    assert money["refunded_micro"] == money["escrow_micro"] == 0
    balances: dict[str, int] = {}
    for line in report["transfers"]:
        balances[line["debit"]] = balances.get(line["debit"], 0) - line["amount"]
        balances[line["credit"]] = balances.get(line["credit"], 0) + line["amount"]
    assert sum(balances.values()) == 0
    for owner in report["owners"]:
        assert balances.get(f"owner:{owner['owner']}", 0) == owner["earned_micro"]
        assert owner["earned_micro"] == owner["payment_micro"] * owner["delivered"] // 8
        assert owner["spent"] == pytest.approx(owner["budget"] * owner["delivered"] / 8)
        assert owner["spent"] <= owner["budget"] <= owner["lifetime_cap"]
    assert balances.get("fund", 0) == money["fund_micro"]
    if dropout == "1":
        assert money["fund_micro"] == 1_000_000


def test_pay_is_proportional_to_the_budget(demo) -> None:
    report = trade(demo, *SMALL)
    for owner in report["owners"]:
        share = owner["budget"] / report["total_budget"]
        assert owner["payment_micro"] == pytest.approx(1e6 * share, abs=1)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_report_and_another_seed_another(demo) -> None:
    same = [trade(demo, *SMALL, "--seed", "3") for _ in range(2)]
    assert same[0] == same[1]
    assert trade(demo, *SMALL, "--seed", "4")["rounds"] != same[0]["rounds"]


@pytest.mark.slow
def test_exact_noise_differs_from_run_to_run(demo) -> None:
    arguments = [*SMALL, "--noise", "exact", "--no-evidence"]
    first, second = (trade(demo, *arguments) for _ in range(2))
    assert first["owners"] == second["owners"]
    assert first["rounds"] != second["rounds"]


@pytest.mark.slow
@pytest.mark.parametrize("reward", ["1", "20", "1000", "1000000"])
def test_nobody_gains_by_another_budget_whether_caps_bind_or_not(demo, reward) -> None:
    report = trade(demo, *SMALL[:-1], reward)
    assert 0 <= report["regret"] <= 1e-9 * float(reward)
    # Owners sell what they replied to the lowest total that is not below it, found to 1e-6: each of
    # n owners moves by less than P does.
    sold = report["total_budget"]
    settled = min(total for total in report["announcements"] if total >= sold * (1 - 1e-12))
    assert settled == pytest.approx(sold, rel=1e-6 * report["participants"])


@pytest.mark.slow
def test_budgets_stop_at_the_lifetime_cap(demo) -> None:
    report = trade(demo, *SMALL[:-1], "1000")
    assert all(owner["spent"] <= owner["lifetime_cap"] for owner in report["owners"])
    assert max(owner["cap_share"] for owner in report["owners"]) == pytest.approx(1.0)


@pytest.mark.slow
def test_aircraft_are_a_federation_of_their_own(demo) -> None:
    report = trade(demo, "--data", "flights:aircraft", "--rounds", "5")
    assert report["card"]["samples"] < 1000
    assert report["participants"] >= 2


@pytest.mark.slow
def test_other_data_and_models_trade_too(demo, tmp_path) -> None:
    file = tmp_path / "people.csv"
    rows = [f"{i % 7},{(i * 37) % 11},{'yes' if i % 7 > 3 else 'no'}" for i in range(400)]
    file.write_text("a,b,label\n" + "\n".join(rows))
    for arguments in (
        ["--data", "sklearn:digits", "--model", "hidden:4"],
        ["--data", "sklearn:breast_cancer", "--model", "least-squares"],
        ["--data", str(file), "--samples", "20", "--partition", "dirichlet:0.5"],
    ):
        report = trade(demo, *arguments, "--rounds", "4", "--reward", "2")
        assert len(report["rounds"]) == 4


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--owners", "1"], "owners must be a finite number of at least 2; found 1"),
        (["--owners", "2.5"], "owners must be a whole number; found 2.5"),
        (["--owners", "1000"], "can serve 53 owners of 60 records, and 1000 were asked for"),
        (["--data", "cats"], "data must be one of flights"),
        (["--data", "absent.csv"], "absent.csv"),
        (["--reward", "much"], "reward must be a number, or best; found 'much'"),
        (["--reward", "nan"], "reward must be"),
        (["--reward", "1e-9"], "reward must be a finite number of at least 1e-06"),
        (["--reward", "1e12"], "at most 9.0072e+09; found 1000000000000.0"),
        (["--uniform", "5"], "--uniform must be LOW:HIGH, such as 1:5; found '5'"),
        (["--uniform", "5:1"], "5"),
        (["--dropout", "2"], "dropout must be"),
        (["--without-data", "53"], "without_data must be fewer than the 53 owners; found 53"),
        (["--without-data", "-1"], "without_data must be a finite number of at least 0; found -1"),
        (["--rounds", "0"], "rounds must be"),
        (["--model", "forest"], "model must be one of"),
        (["--partition", "unequal:1"], "a card fixes one number of records"),
        (["--partition", "tall"], "scheme must be one of"),
        (["--aggregation", "pay"], "--aggregation"),
        (
            ["--accuracy-value", "1e-9", "--reward", "best"],
            "no reward pays at an accuracy value of 1e-09",
        ),
    ],
)
def test_wrong_input_gets_one_sentence(demo, arguments, sentence) -> None:
    options = dict(zip(SMALL[::2], SMALL[1::2], strict=True))
    options |= dict(zip(arguments[::2], arguments[1::2], strict=True))
    code, out, err = demo(*(word for option in options.items() for word in option))
    assert code == 2
    assert out == ""
    last = err.strip().splitlines()[-1]
    assert last.startswith("fedbourse: ")
    assert sentence in last
    assert "Traceback" not in err


def test_a_folder_that_cannot_be_made_is_named_before_the_work(capsys, tmp_path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    assert main(["demo", *SMALL, "--out", str(file / "under")]) == 5
    assert str(Path(file / "under")) in capsys.readouterr().err


@pytest.mark.slow
def test_scaling_is_public_and_pinned_by_the_card(demo) -> None:
    report = trade(demo, "--data", "sklearn:breast_cancer", "--reward", "1", "--rounds", "2")
    scaling = Scaling(*(np.array(report["scaling"][name]) for name in ("shift", "scale")))
    assert report["card"]["scaling"] == scaling.digest
    buyer = load("sklearn:breast_cancer", seed=0).buyer
    assert np.abs(buyer.features[:, :-1].mean(axis=0)).max() < 1e-9  # of the buyer's rows alone


def test_figures_of_the_report_follow_from_each_other(demo) -> None:
    report = trade(demo, *SMALL, "--dropout", "0.3")
    training = Training(
        dimension=6, step_size=1.0, iterations=8, samples=60, clip=report["card"]["clip"]
    )
    budgets = np.array([owner["budget"] for owner in report["owners"]])
    precisions = training.precisions(budgets, np.arange(len(budgets)))
    ends = {name: report["accuracy"][name] for name in ("chance", "ceiling")}
    for name, level in report["accuracy"]["predicted"].items():
        assert level == pytest.approx(Accuracy(name, **ends).of(precisions, report["interested"]))
    for owner in report["owners"]:
        assert owner["cap_share"] == pytest.approx(owner["spent"] / owner["lifetime_cap"])
        assert owner["spent_epsilon"] == pytest.approx(epsilon(rho=owner["spent"], delta=1e-5))


def test_a_reward_in_credits_is_exact_in_micro_credits(demo) -> None:
    # As doubles, 0.000249 times a million falls just short of 249.
    arguments = [*SMALL[:-1], "0.000249"]
    assert trade(demo, *arguments)["money"]["reward_micro"] == 249


def test_names_that_look_like_markup_are_shown_as_they_are(demo, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{i % 7},{(i * 37) % 11},{'[/y]' if i % 7 > 3 else 'no'}" for i in range(400)]
    Path("a[red]b.csv").write_text("a,b,label\n" + "\n".join(rows))
    arguments = ["--data", "a[red]b.csv", "--samples", "20", "--rounds", "2", "--reward", "2"]
    code, out, err = demo(*arguments, folder="o[/z]")
    assert code == 0
    assert "a[red]b.csv" in err
    assert "o[/z]" in out


@pytest.mark.slow
def test_a_pilot_of_one_class_or_without_a_pattern_is_refused(demo, tmp_path) -> None:
    rare, noise = tmp_path / "rare.csv", tmp_path / "noise.csv"
    rare.write_text("a,label\n" + "\n".join(f"{i},{int(i % 80 == 0)}" for i in range(400)))
    rng = np.random.default_rng(0)
    noise.write_text(
        "a,label\n"
        + "\n".join(f"{x},{y}" for x, y in zip(rng.random(400), rng.random(400), strict=True))
    )
    for file in (rare, noise):
        for seed in range(4):
            code, _, err = demo(
                "--data", str(file), "--reward", "1", "--samples", "5", "--seed", str(seed)
            )
            assert code in (0, 2)
            assert "Traceback" not in err
    assert "finds nothing to learn" in err


def test_a_trade_that_fails_leaves_no_folder_behind(demo, tmp_path) -> None:
    code, _, err = demo("--data", "synthetic:d=6,n=40", "--samples", "60", "--reward", "1")
    assert code != 0
    assert err.splitlines()[-1].startswith("fedbourse: ")
    assert not (tmp_path / "out").exists()
