"""Moved to `difftest.report.files`."""

from difftest.report.files import *  # noqa: F403
