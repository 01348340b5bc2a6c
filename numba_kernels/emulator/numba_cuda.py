"""numba-cuda's own front end, which needs no GPU: a kernel that it refuses runs on no GPU, and so not here."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from typing import Any

from numba.core.errors import NumbaError
from numba.cuda.cudadrv.error import CudaSupportError

from .errors import CompileError

TARGET = (9, 0)  # compute capability


def check(function: Any, kinds: tuple[Any, ...]) -> None:
    """Compile a plain kernel for argument types as far as LLVM's code; raises :class:`CompileError` where numba-cuda does not."""
    from numba.core import types
    from numba.cuda.compiler import compile_cuda

    try:
        with warnings.catch_warnings(), contextlib.suppress(CudaSupportError):  # suppressed: it asks the driver about the device
            warnings.simplefilter("ignore")
            compile_cuda(function, types.void, kinds, cc=TARGET)
    except Exception as error:
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
