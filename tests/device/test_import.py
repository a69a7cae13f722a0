"""Importing the agent pulls in no server, database server, plotting or training library."""

import json
import subprocess
import sys

HEAVY = {
    "fastapi",
    "uvicorn",
    "sqlalchemy",
    "psycopg",
    "matplotlib",
    "pyarrow",
    "torch",
    "flwr",
    "scipy",
    "fedbourse.market",
    "fedbourse.web",
    "fedbourse.storage",
    "fedbourse.ledger",
}


def test_the_agent_is_light() -> None:
    program = "import json, sys, fedbourse.device; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(done.stdout))
    assert "fedbourse.device.agent" in loaded
    assert not HEAVY & loaded
