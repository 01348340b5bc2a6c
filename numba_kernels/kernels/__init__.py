"""The kernels. textbook.py has each one as plainly as it can be written; the others say the same, fast.

Each is made by a ``make_*`` function from an operation and a configuration (config.py). norms.py holds the steps from the
textbook to the fast norms; ladder.py lists them.
"""
