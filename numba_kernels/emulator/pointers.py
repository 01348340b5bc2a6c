"""Plain addresses as arguments, which a signature with ``CPointer`` takes: numbers for the host, pointers for the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numba.core import types
from numba.extending import NativeValue, typeof_impl, unbox


@dataclass(frozen=True)
class Pointer:
    """The ``address`` of a value in this process; ``kind``: its Numba type, a ``CPointer``. No check knows where it ends."""

    kind: Any
    address: int


@typeof_impl.register(Pointer)
def _kind_of(value: Pointer, context: Any) -> Any:
    return value.kind


@unbox(types.CPointer)
def _unbox(kind: Any, value: Any, c: Any) -> NativeValue:
    attribute = c.pyapi.object_getattr_string(value, "address")
    address = c.unbox(types.uintp, attribute)
    c.pyapi.decref(attribute)
    return NativeValue(c.builder.inttoptr(address.value, c.context.get_value_type(kind)), is_error=address.is_error)
