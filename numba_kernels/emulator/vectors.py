"""CUDA's vector types (``cuda.float32x4`` and the like) on a CPU: structures of their elements, made of numbers and vectors."""

from __future__ import annotations

import functools
from typing import Any

from numba import extending
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.imputils import Registry
from numba.core.registry import cpu_target
from numba.core.typing.templates import AbstractTemplate, signature
from numba.cuda.stubs import _vector_type_stubs

STUBS = frozenset(_vector_type_stubs)  # what a kernel calls


@functools.cache
def enable() -> None:
    """Teach Numba's CPU target the types; a second call does nothing."""
    from numba.cuda.vector_types import vector_types

    registry = Registry("vector types")
    for made in vector_types.values():
        _enable(made, registry)
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    cpu_target.target_context.install_registry(registry)


def _enable(made: Any, registry: Registry) -> None:
    class Model(models.StructModel):
        def __init__(self, manager: Any, kind: Any) -> None:
            super().__init__(manager, kind, [(name, kind.base_type) for name in kind.attr_names])

    extending.register_model(type(made))(Model)
    for name in made.attr_names:
        extending.make_attribute_wrapper(type(made), name, name)

    class Constructor(AbstractTemplate):
        key = made.user_facing_object

        def generic(self, args: Any, kws: Any) -> Any:
            parts = [part for kind in args for part in _parts(kind)]
            fits = len(parts) == made.num_elements and all(isinstance(p, types.Number | types.Boolean) for p in parts)
            return signature(made, *args) if fits and not kws else None

    cpu_target.typing_context.insert_global(made.user_facing_object, types.Function(Constructor))

    @registry.lower(made.user_facing_object, types.VarArg(types.Any))
    def construct(context, builder, sig, args):
        elements = []
        for kind, value in zip(sig.args, args, strict=True):
            if isinstance(kind, types.Number | types.Boolean):
                elements.append(context.cast(builder, value, kind, made.base_type))
                continue
            given = cgutils.create_struct_proxy(kind)(context, builder, value)
            elements += [context.cast(builder, getattr(given, n), kind.base_type, made.base_type) for n in kind.attr_names]
        vector = cgutils.create_struct_proxy(made)(context, builder)
        for name, element in zip(made.attr_names, elements, strict=True):
            setattr(vector, name, element)
        return vector._getvalue()


def _parts(kind: Any) -> list[Any]:
    """The types of the elements of a constructor's argument."""
    return [kind.base_type] * kind.num_elements if hasattr(kind, "attr_names") else [types.unliteral(kind)]
