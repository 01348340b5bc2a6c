"""What a process has one of, and a call may leave changed: put back after each call, and named."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

Read = Callable[[], Any]
Write = Callable[[Any], object]


def _flushes() -> bool:
    """Whether this thread's arithmetic makes zero of subnormal numbers."""
    return float.fromhex("0x1p-1073") * 0.5 == 0.0


def _infers(on: bool) -> None:
    _GUARDS.append(torch._C._InferenceMode(on))  # lasts as long as the object


_GUARDS: list[object] = []
_SETTINGS: dict[str, tuple[Read, Write]] = {
    "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch's default device": (lambda: torch.get_default_device(), lambda device: torch.set_default_device(device)),
    "flush-to-zero": (_flushes, torch.set_flush_denormal),
    "torch's inference mode": (torch.is_inference_mode_enabled, _infers),
    "torch's grad mode": (torch.is_grad_enabled, torch._C._set_grad_enabled),
    "torch's number of threads": (torch.get_num_threads, torch.set_num_threads),
    "the working directory": (os.getcwd, os.chdir),
}
_NAMESPACES = {"torch": torch, "torch.Tensor": torch.Tensor, "torch.nn.functional": torch.nn.functional}
_MODULES = ("torch", "torch.nn.functional", "builtins", "sys", "os")


class Watch:
    """The state of this process as it was when this was made, or when `changed` was last asked."""

    def __init__(self) -> None:
        self._settings = {name: _read(read) for name, (read, _) in _SETTINGS.items()}
        self._environment = dict(_environment())
        self._names = {name: dict(vars(space)) for name, space in _NAMESPACES.items()}
        self._modules = {name: sys.modules[name] for name in _MODULES}
        self._threads = set(threading.enumerate())
        self._streams = {number: os.dup(number) for number in (1, 2)}
        self._python_streams = sys.stdout, sys.stderr

    def changed(self) -> list[str]:
        """What has changed, by name; it is put back."""
        return [*self._modules_gone(), *self._set_again(), *self._environment_again(), *self._patched(), *self._streams_again()]

    def differs_from(self, later: Watch) -> list[str]:
        """What was another when `later` was made, by name. Nothing is put back, but for the streams."""
        found = [name for name, value in self._settings.items() if value != later._settings[name]]
        found += ["os.environ"] if self._environment != later._environment else []
        for space, names in self._names.items():
            now = later._names[space]
            found += [f"{space}.{n}" for n, value in names.items() if now.get(n) is not value and not _of_torch(now.get(n))]
        return found + self._streams_again()

    def new_threads(self) -> bool:
        """Whether there are threads that there were not when this was last asked."""
        before, self._threads = self._threads, set(threading.enumerate())
        return not self._threads <= before

    def _modules_gone(self) -> list[str]:
        gone = [name for name, module in self._modules.items() if sys.modules.get(name) is not module]
        for name in gone:
            sys.modules[name] = self._modules[name]
        return [f"sys.modules[{name!r}]" for name in gone]

    def _set_again(self) -> list[str]:
        found = []
        for name, (read, write) in _SETTINGS.items():
            if _read(read) != self._settings[name]:
                found.append(name)
                with suppress(Exception):
                    write(self._settings[name])
        return found

    def _environment_again(self) -> list[str]:
        if _environment() == self._environment:
            return []
        os.environ.clear()
        os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in self._environment.items()})
        return ["os.environ"]

    def _patched(self) -> list[str]:
        """Names of torch that stand for something else; what was added is left alone: torch adds to itself."""
        found = []
        for space, names in self._names.items():
            now = vars(_NAMESPACES[space])
            if _contains(now, names) and (space != "torch.Tensor" or len(now) == len(names)):
                continue
            changed = [name for name, value in names.items() if now.get(name) is not value and not _of_torch(now.get(name))]
            hides = [name for name in list(now) if name not in names and hasattr(torch._C.TensorBase, name)]
            for name in changed:
                with suppress(Exception):
                    setattr(_NAMESPACES[space], name, names[name])
            for name in hides if space == "torch.Tensor" else ():
                with suppress(Exception):
                    delattr(_NAMESPACES[space], name)
                changed.append(name)
            found += [f"{space}.{name}" for name in changed]
        return found

    def _streams_again(self) -> list[str]:
        """Descriptors 1 and 2 lead where they led, through Python's two streams."""
        found = []
        for number, kept in self._streams.items():
            if not _same_file(number, kept):
                os.dup2(kept, number)
                found.append(f"file descriptor {number}")
        if (sys.stdout, sys.stderr) != self._python_streams or any(stream.closed for stream in self._python_streams):
            sys.stdout, sys.stderr = self._python_streams
            found.append("sys.stdout or sys.stderr")
        for stream in self._python_streams:
            with suppress(Exception):
                stream.flush()
        return found


def _read(read: Read) -> Any:
    try:
        return read()
    except Exception as error:  # a directory that is gone
        return type(error).__name__


def _environment() -> Any:
    """The environment; on the systems that isolation is for as the bytes that Python keeps, which are compared at once."""
    return getattr(os.environ, "_data", os.environ)


def _contains(now: Any, names: dict[str, Any]) -> bool:
    """Whether every name stands for the same; quick, and False where that can't be said quickly."""
    try:
        return bool(names.items() <= now.items())
    except Exception:  # values of other people's, compared
        return False


def _of_torch(value: Any) -> bool:
    """Whether it is a Python function of torch's: it replaces some of its own when its compiler is imported."""
    return str(getattr(value, "__module__", "")).partition(".")[0] == "torch" and hasattr(value, "__code__")


def _same_file(one: int, other: int) -> bool:
    try:
        return os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:
        return False
