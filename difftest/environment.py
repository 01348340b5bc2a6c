"""Moved to `difftest.run.environment`."""

from difftest.run.environment import *  # noqa: F403
