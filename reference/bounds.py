"""Kept at the old name until its readers import `reference.exact`."""

from reference.exact.activations import EXP_LIMIT, underflow_error
from reference.exact.bounds import *  # noqa: F403

__all__ = ["EXP_LIMIT", "underflow_error"]
