from .runtime.launch import *  # noqa: F403
