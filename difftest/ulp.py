"""Moved to `difftest.verdict.ulp`."""

from difftest.verdict.ulp import *  # noqa: F403
