"""Functions that mean something else in ``numba.cuda`` than on a CPU, or nothing there: what runs in their place."""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba.core import types

from .words import intrinsic


def _rounding(name: str) -> Any:
    """``math.floor`` and its kin: a float in ``numba.cuda``, of the argument's type; of an integer, the same as float64."""

    @intrinsic
    def rounded(typingctx, x):
        kind = types.unliteral(x)
        if not isinstance(kind, types.Integer | types.Float | types.Boolean):
            return None
        made = kind if isinstance(kind, types.Float) else types.float64

        def codegen(context, builder, sig, args):
            value = context.cast(builder, args[0], kind, made)
            native = context.get_value_type(made)
            function = ir.FunctionType(native, (native,))
            callee = builder.module.globals.get(f"llvm.{name}.f{made.bitwidth}")
            if callee is None:
                callee = ir.Function(builder.module, function, f"llvm.{name}.f{made.bitwidth}")
            return builder.call(callee, [value])

        return made(kind), codegen

    return rounded


SUBSTITUTES: dict[Any, Any] = {
    math.floor: _rounding("floor"),
    math.ceil: _rounding("ceil"),
    math.trunc: _rounding("trunc"),
}
