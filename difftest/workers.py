"""Moved to `difftest.run.pool`."""

from difftest.run.pool import *  # noqa: F403
