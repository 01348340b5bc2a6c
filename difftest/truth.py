"""Moved to `difftest.verdict.truth`."""

from difftest.verdict.truth import *  # noqa: F403
