"""Moved to `difftest.providers.resolve`."""

from difftest.providers.resolve import *  # noqa: F403
