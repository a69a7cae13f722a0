"""Settings for all tests."""

from itertools import count

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is slow, not wrong: time is no test.
settings.register_profile("fedbourse", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("check", settings.get_profile("fedbourse"), max_examples=10)
settings.load_profile("fedbourse")

pytest_plugins = ["fedbourse.testing.databases", "kinds"]
_states = count()


@pytest.fixture(autouse=True)
def state_folder(monkeypatch, tmp_path_factory):
    """Give each test a user's state folder of its own, which is made when something is kept."""
    folder = tmp_path_factory.getbasetemp() / f"state-{next(_states)}"
    monkeypatch.setenv("FEDBOURSE_STATE", str(folder))
    return folder


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what mostly waits: one worker is at it for long, while others compute."""
    items.sort(key=lambda item: "e2e" not in item.path.parts)
