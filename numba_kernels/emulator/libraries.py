"""The emulator's compiler: Numba's, with code libraries and a lowering of its own. And functions that LLVM does not write out
where they are called, since what is seldom called would make its callers slow."""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.typed_passes import NativeLowering
from numba.core.untyped_passes import IRProcessing

from .lowering import EmulatedLowering


class OwnLibrary(FunctionPass):
    """Gives the function that is compiled a code library of the class ``kind``."""

    _name = "own_library"
    kind: type[JITCodeLibrary] = JITCodeLibrary

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        state.library = self.kind(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return True


class OwnCompiler(CompilerBase):
    """Numba's compiler with the pass ``library``, and the emulator's lowering."""

    library: type[OwnLibrary] = OwnLibrary

    def define_pipelines(self) -> list[Any]:
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.add_pass_after(self.library, IRProcessing)
        pipeline.passes = [(EmulatedLowering if each is NativeLowering else each, why) for each, why in pipeline.passes]
        pipeline.finalize()
        return [pipeline]


class _OutOfLineLibrary(JITCodeLibrary):
    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration:
                function.add_function_attribute("noinline")
        super()._optimize_final_module()


@register_pass(mutates_CFG=False, analysis_only=True)
class _OutOfLine(OwnLibrary):
    _name = "out_of_line_library"
    kind = _OutOfLineLibrary


class OutOfLineCompiler(OwnCompiler):
    library = _OutOfLine
