"""The command line in this process, for the files that it leaves."""

from ..in_process import one_thread, run

__all__ = ["one_thread", "run"]
