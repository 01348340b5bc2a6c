"""CUDA's indices and memories become words of the environment and arrays at fixed places."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
from numba import cuda
from numba import types as numba_types
from numba.np.numpy_support import as_dtype

from ..environment import Env
from .constants import constant
from .program import UNKNOWN
from .statements import StatementPass, load, parsed
from .targets import ATOMICS, DIM3, FENCES, is_hashable


def aligned(size: int) -> int:
    return -(-size // 16) * 16


class Lower(StatementPass):
    def do_Expr(self, node: ast.Expr) -> None:
        value = self.expression(node.value)
        if not isinstance(value, ast.Name | ast.Constant):
            self.emit(ast.Expr(value))

    def expression(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Attribute) and node.attr in ("x", "y", "z"):
            base = self.program.value(node.value)
            if base is cuda.threadIdx:
                return parsed(f"__thread_{node.attr}(__env, __t)")
            if is_hashable(base) and base in DIM3:
                return parsed(f"__word32(__env, {int(DIM3[base]['xyz'.index(node.attr)])})")
        if isinstance(node, ast.Name):
            value = self.program.value(node)
            return parsed("__lane_of(__t)") if value is cuda.laneid else ast.Constant(32) if value is cuda.warpsize else node
        if isinstance(node, ast.Call):
            made = self.called(node, self.program.value(node.func))
            if made is not None:
                return made
        return self.rebuilt(node)

    def called(self, node: ast.Call, target: Any) -> ast.expr | None:
        if target is cuda.shared.array or target is cuda.local.array:
            return self.memory(node, shared=target is cuda.shared.array)
        if target is cuda.grid or target is cuda.gridsize:
            return self.grid(node, target)
        if target is cuda.const.array_like:
            return self.expression(node.args[0])
        if target is cuda.lanemask_lt:
            return parsed("__lanes_below(__t)")
        if target is cuda.cg.this_grid:
            return ast.Constant(1)
        if is_hashable(target) and target in ATOMICS:
            if node.keywords:
                raise self.refusal(f"cuda.atomic.{ATOMICS[target]} with keyword arguments", node)
            arguments = [self.expression(a) for a in node.args]
            return ast.Call(load(f"__atomic_{ATOMICS[target]}"), [load("__env"), *arguments], [])
        if is_hashable(target) and target in FENCES:
            self.program.fences = True
        if is_hashable(target) and target in FENCES:  # threads run one after the other
            return ast.Call(load("__fence"), [load("__env")], []) if self.program.full else ast.Constant(None)
        return None

    def grid(self, node: ast.Call, target: Any) -> ast.expr:
        count = constant(self.program.value, node.args[0])
        if count not in (1, 2, 3):
            raise self.refusal("cuda.grid and cuda.gridsize take 1, 2 or 3", node)
        parts = []
        for axis in range(count):
            dim = f"__peek(__env, {Env.DIM_X + axis})"
            thread = f"__thread_{'xyz'[axis]}(__env, __t)"
            text = f"__peek(__env, {Env.BLOCK_X + axis}) * {dim} + {thread}"
            parts.append(text if target is cuda.grid else f"__peek(__env, {Env.GRID_X + axis}) * {dim}")
        return parsed(parts[0] if count == 1 else "(" + ", ".join(parts) + ")")

    def memory(self, node: ast.Call, *, shared: bool) -> ast.expr:
        """``cuda.shared.array`` or ``cuda.local.array``: an array at a fixed place of the block's or the thread's memory."""
        program = self.program
        given = dict(zip(("shape", "dtype", "alignment"), node.args, strict=False))
        given.update({k.arg: k.value for k in node.keywords if k.arg is not None})
        shape: Any = constant(program.value, given["shape"]) if "shape" in given else UNKNOWN
        dtype: Any = program.value(given["dtype"]) if "dtype" in given else UNKNOWN
        named = given.get("dtype")
        if isinstance(named, ast.Constant) and isinstance(named.value, str):
            dtype = np.dtype(named.value)
        kind = "shared" if shared else "local"
        if shape is UNKNOWN:
            raise self.refusal(f"the shape of a cuda.{kind}.array is not a constant", node)
        if dtype is UNKNOWN:
            raise self.refusal(f"the dtype of a cuda.{kind}.array is not a constant", node)
        element = as_dtype(dtype) if isinstance(dtype, numba_types.Type) else np.dtype(dtype)
        if element.hasobject:
            raise self.refusal(f"a cuda.{kind}.array of {getattr(dtype, '__name__', dtype)}", node)
        extents = tuple(int(e) for e in shape) if isinstance(shape, tuple) else (int(shape),)
        size = int(np.prod(extents)) * element.itemsize
        name, text = program.name_of(element, "dtype"), str(extents[0]) if len(extents) == 1 else str(extents)
        if not shared:
            offset = aligned(program.local_bytes)
            program.local_bytes = offset + size
            return parsed(f"__local_array(__env, __t, {offset}, {text}, {name})")
        program.grain = min(program.grain, element.itemsize)
        if extents == (0,):
            return parsed(f"__dynamic_array(__env, {name})")
        offset = aligned(program.static_bytes)
        program.static_bytes = offset + size
        return parsed(f"__shared_array(__env, {offset}, {text}, {name})")
