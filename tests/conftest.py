"""Settings for all tests."""

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is slow, not wrong: time is no test.
settings.register_profile("fedbourse", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fedbourse")

pytest_plugins = ["databases"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what mostly waits: one worker is at it for long, while others compute."""
    items.sort(key=lambda item: "e2e" not in item.path.parts)
