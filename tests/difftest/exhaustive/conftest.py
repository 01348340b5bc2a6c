"""The command line in this process, on small shares."""

from ..in_process import one_thread, run  # noqa: F401
