from .runtime.launcher import *  # noqa: F403
from .runtime.launcher import pack_arguments as make_record  # noqa: F401
