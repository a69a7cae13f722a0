"""The cluster example of docs/how-to/many-owners.md, run as it stands on two cores of Ray."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedbourse import equilibrium

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "many-owners.md"
START = """
import ray
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
         object_store_memory=100 << 20, _temp_dir=TEMP)
"""


def example() -> str:
    """Return the program that the page marks as run here."""
    marker = r"<!-- run by tests/files/test_many_owners.py -->\n```python\n(.*?)```"
    result = re.search(marker, PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert result is not None
    return result[1]


def test_the_cluster_example_finds_the_participants_of_all_files(tmp_path) -> None:
    values = np.random.default_rng(3).uniform(1, 5, 3000)
    (tmp_path / "owners").mkdir()
    for i, part in enumerate(np.array_split(values, 3)):
        pq.write_table(pa.table({"value": part}), tmp_path / "owners" / f"{i}.parquet")
    temp = f"/tmp/ray-{os.getpid()}"  # a socket's path must be short
    done = subprocess.run(
        [sys.executable, "-c", START.replace("TEMP", repr(temp)) + example()],
        cwd=tmp_path,
        env=os.environ | {"HOME": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    shutil.rmtree(temp, ignore_errors=True)
    assert done.returncode == 0, done.stderr[-2000:]
    known = equilibrium(values, reward=100).participants.tolist()
    result = sorted(ast.literal_eval(done.stdout.strip().splitlines()[-1]))
    assert result == [(f"{i // 1000}.parquet", i % 1000) for i in known]


def test_the_cluster_example_is_ten_lines_or_so() -> None:
    assert len([line for line in example().splitlines() if line]) <= 12
