"""Moved to `difftest.cases.regimes`."""

from difftest.cases.regimes import *  # noqa: F403
