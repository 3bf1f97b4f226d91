"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

# The same examples every time: a red run can be repeated, and a green one was not luck.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
