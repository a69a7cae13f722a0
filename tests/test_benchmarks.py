"""The benchmark of training runs at a tiny size, and its page has every row; no time is judged."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dashboard.test_cost_classes import addresses

ROOT = Path(__file__).parents[1]
SIZE = ["--owners", "2", "--samples", "8", "--features", "5", "--turns", "2"]
GROWTH = ["--growth-owners", "2", "4", "--growth-shape", "6", "3"]


@pytest.fixture(scope="module")
def page() -> str:
    script = str(ROOT / "benchmarks" / "training.py")
    done = subprocess.run(
        [sys.executable, script, *SIZE, *GROWTH, "--without-peers"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of all tables of a section, titles and rules left out."""
    section = re.split(rf"^## {heading}$", page, flags=re.MULTILINE)[1].split("\n## ")[0]
    lines = re.findall(r"^\| (.+) \|$", section, re.MULTILINE)
    tables = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    return [cells for cells in tables if re.search(r"\d", cells[1])]


@pytest.mark.parametrize(
    ("heading", "contestants"),
    [
        (
            "Against no privacy",
            ["one look", "one pass", "by blocks", "owner by owner", "simulated noise"],
        ),
        ("With exact noise", ["one pass", "owner by owner", "simulated noise", "exact noise"]),
        ("More owners", ["2 owners, m = 6, d = 3", "4 owners, m = 6, d = 3"]),
        ("Memory", ["one pass", "simulated noise"]),
    ],
)
def test_every_section_has_its_rows_with_ratios(
    page: str, heading: str, contestants: list[str]
) -> None:
    found = rows(page, heading)
    for contestant in contestants:
        assert any(contestant in cells[0] for cells in found)
    assert all(0 < float(cells[-1]) < 1e9 for cells in found)


def test_the_fastest_way_without_privacy_is_the_measure(page: str) -> None:
    ratios = [float(cells[-2]) for cells in rows(page, "With exact noise")[:3]]
    assert min(ratios) == 1.0


def test_a_page_of_another_size_judges_no_goal(page: str) -> None:
    assert "Goal" not in page


def test_peers_can_be_left_out(page: str) -> None:
    assert "Opacus" not in page


def test_the_benchmark_of_the_market_runs_at_a_tiny_size() -> None:
    script = str(ROOT / "benchmarks" / "market.py")
    done = subprocess.run(
        [sys.executable, script, "--count", "20", "--turns", "1", "--owners", "50"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    tables = re.findall(r"^\| (SQLite|PostgreSQL) \| ([^|]+) \|", done.stdout, re.MULTILINE)
    assert tables == [
        (database, what)
        for whats in (("bare insert", "signed plan"), ("50",))
        for database in ("SQLite", "PostgreSQL")
        for what in whats
    ]


def test_the_benchmark_of_the_network_has_its_rows() -> None:
    script = str(ROOT / "benchmarks" / "network.py")
    size = ["--devices", "2", "--dimension", "5", "--rounds", "3", "--large", "0"]
    done = subprocess.run(
        [sys.executable, script, *size, "--flower-rounds", "0"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    (cells,) = rows(done.stdout, "The market's own devices")
    assert cells[:2] == ["2", "5"]
    # Noise of five numbers is rounded to nothing, and the processor's clock may not have ticked.
    assert all(float(cell) >= 0 for cell in (cells[3], cells[8]))
    assert all(float(cell) > 0 for cell in (cells[2], *cells[4:6], cells[7], cells[9]))
    assert re.search(r"The goal is (met|missed): the largest ratio is", done.stdout)


def test_the_benchmark_of_a_large_market_has_its_rows() -> None:
    script = str(ROOT / "benchmarks" / "market_scale.py")
    done = subprocess.run(
        [sys.executable, script, "--owners", "2000"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    table = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("|")]
    found = table[2:]
    assert all(float(cells[3]) >= 0 for cells in found)
    assert [cells[1] for cells in found] == [
        *["announce", "what-if"] * 2,
        "tick",
        "settle",
    ]


def test_the_benchmark_of_pages_asks_for_every_one() -> None:
    script = str(ROOT / "benchmarks" / "page_costs.py")
    size = ["--tasks", "5", "--rounds", "4", "--owners", "20", "--transfers", "10", "--runs", "1"]
    done = subprocess.run(
        [sys.executable, script, *size],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=ROOT,
    )
    assert done.returncode in (0, 1), done.stderr
    assert re.search(r"The bound of 50 ms is (met|missed)", done.stdout), done.stderr
    table = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if "|" in line]
    found = [[cells[0].strip("`"), *cells[1:]] for cells in table[2:]]
    asked = {(cells[0], cells[1]) for cells in found}
    assert {route for route, _ in asked} == set(addresses())
    assert ("/tasks/{task}/report", "stranger") in asked
    assert ("/v1/tasks/{task}/allocations", "operator") in asked
    assert ("/v1/tasks/{task}/allocations", "buyer") not in asked
    kinds = {cells[0]: cells[-1] for cells in found}
    assert (kinds["/v1/me"], kinds["/v1/tasks/{task}/what-if"]) == ("light", "heavy")


def test_the_benchmark_of_noise_has_its_contestants_and_correlations() -> None:
    script = str(ROOT / "benchmarks" / "noise.py")
    size = ["--dimensions", "20", "200", "--turns", "2", "--count", "60", "--timed-dimension", "5"]
    done = subprocess.run(
        [sys.executable, script, *size], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    costs = rows(done.stdout, "A coordinate")
    for dimension in ("20", "200"):
        assert [cells[0] for cells in costs if cells[1] == dimension] == [
            "exact noise",
            "its random bits alone",
            "NumPy's normal, no protection",
            "OpenDP's discrete Gaussian",
        ]
    assert all(float(cells[-1]) > 0 for cells in costs)
    assert re.search(r"Goal: at most 0\.5 us a coordinate: (met|missed)", done.stdout)
    assert len(rows(done.stdout, "At other scales")) == 7
    correlations = rows(done.stdout, "What the time tells")
    assert len(correlations) == 9
    assert all(-1 <= float(cells[1]) <= 1 for cells in correlations[:5])


def test_the_benchmark_of_own_costs_finds_the_reward_of_the_built_in_cost() -> None:
    script = str(ROOT / "benchmarks" / "own_cost.py")
    done = subprocess.run(
        [sys.executable, script, "--owners", "8", "--runs", "1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (cells,) = [
        line.strip("| ").split(" | ") for line in done.stdout.splitlines() if "| 8 " in line
    ]
    assert float(cells[3]) < 1e-8


def test_the_benchmark_of_mechanisms_has_its_rows() -> None:
    script = str(ROOT / "benchmarks" / "mechanisms.py")
    done = subprocess.run(
        [sys.executable, script, "--owners", "2000"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    table = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if "|" in line]
    sellers = [int(cells[1].replace(",", "")) for cells in table[2:]]
    assert len(sellers) == 5
    assert sellers[2] == sellers[4] == 2000
    assert all(float(cells[4]) > 0 for cells in table[2:])
