"""The differential tester: cases, comparison in ULP, verdicts, reports.

Uses `reference` and `numba_kernels` through small interfaces; neither of them may import it.
"""
