"""The kernels, in ``numba.cuda``. Each is made by a ``make_*`` function from an operation and a configuration (see config.py).

Read textbook.py first; norms.py holds the steps from there to the fast forms, ladder.py lists them.
"""
