"""The emulator's old name, until nothing imports it."""

from ..emulator import *  # noqa: F403
from ..emulator import EmulatedKernel as ReplayKernel  # noqa: F401
from ..emulator import EmulatorError as ReplayError  # noqa: F401
