"""Moved to `difftest.verdict.compare`."""

from difftest.verdict.compare import *  # noqa: F403
