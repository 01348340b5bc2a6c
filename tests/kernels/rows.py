from tests.numba_kernels.rows import *  # noqa: F403
