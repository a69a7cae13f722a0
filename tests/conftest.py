"""Hypothesis judges laws, not speed: a first example pays for imports."""

from hypothesis import settings

settings.register_profile("fedbourse", deadline=None)
settings.load_profile("fedbourse")
