"""How Numba's own code for a function becomes LLVM code in the emulator: less of it, which takes less time to write and to read.

Where nothing counts references, nothing is to be done when a variable is given another value, or ends; and of a generator's
variables only those that live across a wait need a place in memory.
"""

from __future__ import annotations

from typing import Any

from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import BaseNativeLowering


class EmulatedLower(Lower):
    """Numba's lowering, without what is of use only to its counting of references."""

    def _find_singly_assigned_variable(self) -> None:
        """Numba keeps all variables of a generator in memory: here as in any other function, but for those that wait."""
        identity = self.func_ir.func_id
        is_generator, identity.is_generator = identity.is_generator, False
        try:
            super()._find_singly_assigned_variable()
        finally:
            identity.is_generator = is_generator
        if is_generator:
            self._singly_assigned_vars -= set(self.generator_info.state_vars)

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        """As Numba's, but what the variable held is not read."""
        if self.context.enable_nrt or argidx is not None or name in self._singly_assigned_vars:
            super().storevar(value, name, argidx)
            return
        self._alloca_var(name, self.typeof(name))
        self.builder.store(value, self.getvar(name))

    def delvar(self, name: str) -> None:
        """As Numba's, which clears the variable, so that what it holds is not given back again."""
        if self.context.enable_nrt:
            super().delvar(name)


@register_pass(mutates_CFG=True, analysis_only=False)
class EmulatedLowering(BaseNativeLowering):
    """The pass."""

    _name = "emulated_lowering"  # type: ignore[assignment]
    lowering_class = EmulatedLower
