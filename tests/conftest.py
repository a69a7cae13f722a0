"""Settings for all tests."""

from hypothesis import HealthCheck, settings

# A busy machine is slow, not wrong: time is no test.
settings.register_profile("fedbourse", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fedbourse")

pytest_plugins = ["databases"]
