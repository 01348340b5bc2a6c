"""Moved to `difftest.run.call`."""

from difftest.run.call import *  # noqa: F403
