"""Kept at the old name until its readers import `reference.rounding`."""

from reference.rounding import overflow_boundary, ulp_of
from reference.rounding import rounding_interval as rounding_cell

__all__ = ["overflow_boundary", "rounding_cell", "ulp_of"]
