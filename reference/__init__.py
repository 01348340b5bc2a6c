"""What is right: operators, rounding contracts, their plain arithmetic, and other people's implementations.

This package imports torch and nothing of the kernels or of the tester; both of them may import it.
"""
