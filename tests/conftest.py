"""Settings of the whole suite."""

from hypothesis import settings

# The same examples every time: a failure in CI is a failure here.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
