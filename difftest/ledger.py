"""Moved to `difftest.cases.ledger`."""

from difftest.cases.ledger import *  # noqa: F403
