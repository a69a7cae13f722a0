"""The attacks of ``soak/attack.py``, shortly: nothing gets through, and they would notice it.

How long honest plans take meanwhile is for ``make soak`` alone: a busy machine is slow, not wrong.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ATTACK = Path(__file__).parents[2] / "soak" / "attack.py"
ATTACKERS = ["stranger", "buyer", "owner", "network"]
WAIT_S = 300


def rows(*arguments: str) -> list[dict[str, str]]:
    """Run the attacks; return the rows of the table by the names of their columns."""
    command = [sys.executable, str(ATTACK), "--seconds", "1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len(lines) > 2, done.stderr
    names, _, *found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(names, cells, strict=True)) for cells in found]


def test_nothing_gets_through() -> None:
    found = rows("--databases", "sqlite", "--connections", "4", "--no-device")
    assert [each["attacker"] for each in found] == ["nobody", *ATTACKERS]
    for each in found:
        assert each["got through"] == "0", each
        assert each["attacker"] == "nobody" or each["tried"] != "nothing"
        assert int(each["plans"]) > 0


THROUGH = {
    "enrolment-read": "nonces beyond the plans",
    "page-problems": "responses of 500",
    "scopes-buyer": "budgets shown",
    "device-signature": "plans without the device",
}
"""What gets through where a defence is undone."""


def test_an_attack_notices_a_defence_that_is_undone() -> None:
    for (undone, through), found in zip(THROUGH.items(), rows("--undo", *THROUGH), strict=True):
        assert through in found["got through"], undone


def test_every_defence_that_can_be_undone_is_there() -> None:
    """A defence that was renamed would be undone by nobody, and its row would mean nothing."""
    names = (
        "import undone; print([k for k, u in undone.UNDOINGS.items() if not hasattr(*u.patch[:2])])"
    )
    done = subprocess.run(
        [sys.executable, "-c", names], cwd=ATTACK.parent, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
