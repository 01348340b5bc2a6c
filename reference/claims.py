"""Kept at the old name until its readers import `reference.providers.claims`."""

from reference.providers.claim import Claim
from reference.providers.claims import CLAIMS, claim, libraries

__all__ = ["CLAIMS", "Claim", "claim", "libraries"]
