"""Beyond the designed cases: every width swept, dimensions combined, and each failure shrunk to the smallest that still fails."""
