"""The program of the how-to takes part in a real task, from enrolment to the last payment."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

from cli.markets import CARD, WAIT_S, Shell, new_token, paid_in, running_market

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "embed-the-agent.md"


def test_two_devices_of_the_how_to_are_paid_to_the_end(capsys, tmp_path) -> None:
    program = tmp_path / "device.py"
    program.write_text(re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1])
    card = tmp_path / "card.json"
    card.write_text(json.dumps(CARD | {"deadlines": {"review_s": 0}}))
    with running_market(tmp_path / "market") as market:
        shell = Shell(capsys, market.url)
        acme = new_token(shell, market, "buyer:acme", tmp_path)
        kay = new_token(shell, market, "auditor:kay", tmp_path)
        paid_in(shell, market, acme, party="buyer:acme", credits="20", reference="first")
        task = shell.json("task", "create", card, token=acme)["task"]
        shell.json("task", "open", task, token=acme)
        devices = []
        for owner in ("ann", "bob"):
            enrolment = tmp_path / f"{owner}.enrolment"
            named = ("--owner", f"owner:{owner}", "--out", enrolment)
            shell.json("token", "enrol", *named, token=market.operator)
            started = [sys.executable, program, market.url, enrolment]
            devices.append(subprocess.Popen(started, stdout=subprocess.PIPE, text=True))
        until = time.monotonic() + WAIT_S
        while shell("task", "announce", task, token=acme)[0] != 0:  # both must be interested
            assert time.monotonic() < until
        said = [device.communicate(timeout=WAIT_S)[0].split()[-2:] for device in devices]
        assert [word for word, _ in said] == ["completed", "completed"]
        assert sum(int(earned) for _, earned in said) == CARD["reward"] * 1e6
        checks = shell.json("verify", task, token=kay)["checks"]
        assert all(check["passed"] for check in checks), checks
