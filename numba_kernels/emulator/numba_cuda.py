"""numba-cuda's own front end, which needs no GPU: a kernel that it refuses runs on no GPU, and so not here."""

from __future__ import annotations

import inspect
import threading
import warnings
from typing import Any
from unittest import mock

from numba.core.errors import NumbaError
from numba.cuda.cudadrv.error import CudaSupportError

from .contraction import contracted
from .errors import CompileError
from .host import Context

TARGET = (9, 0)  # compute capability


_one_at_a_time = threading.Lock()


def check(function: Any, kinds: tuple[Any, ...]) -> list[tuple[str, int]]:
    """Compile a plain kernel for argument types as far as LLVM's code; raises :class:`CompileError` where numba-cuda does not.
    Returns the places at which a GPU may round otherwise (contraction.py)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return sorted(contracted(_compiled(function, kinds), set()))
    except CudaSupportError:  # it needs the toolkit
        return []
    except Exception as error:
        if "NRT required" in str(error):  # copies of slices: taken where numba-cuda's counting of references is switched on
            return []
        line = function.__code__.co_firstlineno
        location = getattr(error, "loc", None)
        if location is not None and location.filename == function.__code__.co_filename:
            line = location.line
        said = str(error) if isinstance(error, NumbaError) else f"{type(error).__name__}: {error}"
        raise CompileError(
            f"numba-cuda cannot compile it: {said}",
            kernel=function.__name__,
            file=inspect.getsourcefile(function) or "?",
            line=line,
        ) from error


def _compiled(function: Any, kinds: tuple[Any, ...]) -> Any:
    from numba.core import types
    from numba.cuda import api
    from numba.cuda.compiler import compile_cuda

    try:
        return compile_cuda(function, types.void, kinds, cc=TARGET)
    except CudaSupportError:  # device functions are compiled for the device that the driver names: without one, for an H200
        with _one_at_a_time, mock.patch.object(api, "current_context", return_value=Context):
            return compile_cuda(function, types.void, kinds, cc=TARGET)
