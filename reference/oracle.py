"""Kept at the old name until its readers import `reference.exact.oracle`."""

from reference.exact.oracle import OracleResult, correctly_rounded, fractional_ulp_error

__all__ = ["OracleResult", "correctly_rounded", "fractional_ulp_error"]
