"""Shared by all tests."""

import os

from hypothesis import settings

# A build machine's pauses are not the code's fault; the same examples everywhere make a failure there one here.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
