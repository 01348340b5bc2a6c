from .runtime.launcher import *  # noqa: F403
