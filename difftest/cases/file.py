"""A file of tensors, real activations say: .safetensors or .npz, read without pickle, its names, formats and shapes checked."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from difftest.errors import LackingError
from difftest.wording import in_a_line
from reference.formats import FORMATS
from reference.operators import OPERATORS, Operator
from reference.operators.declaration import PARTS, Tensors

KNOWN = tuple(dict.fromkeys((*(name for op in OPERATORS.values() for name in op.inputs), *PARTS)))
SUFFIXES = (".safetensors", ".npz")


def digest(path: Path) -> str:
    """SHA-256 of the file, in hexadecimal. ValueError where it can't be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # a NUL in its name
        raise ValueError(f"{path}: {error}") from None


@lru_cache(maxsize=2)
def load(path: Path, sha256: str) -> dict[str, torch.Tensor]:
    """The tensors of the file by name, on the CPU: not to be written to. ValueError for one that is another than it was, for
    one that can't be read, and for a name or a format that no operator takes. LackingError without the library that reads it.
    """
    found = digest(path)
    if found != sha256:
        raise ValueError(f"{path} is another file than it was: its sha256 is {found[:12]}..., not {sha256[:12]}...")
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path} is neither of {', '.join(SUFFIXES)}")
    tensors = _safetensors(path) if path.suffix == ".safetensors" else _npz(path)
    for name, tensor in tensors.items():
        if name not in KNOWN:
            raise ValueError(f"{path} holds {name!r}, which no operator takes; allowed: {', '.join(KNOWN)}")
        if tensor.dtype not in [each.torch for each in FORMATS.values()]:
            raise ValueError(f"{path}: {name} is {tensor.dtype}; allowed: {', '.join(FORMATS)}")
    return tensors


def inputs_of(op: str, tensors: Tensors) -> dict[str, torch.Tensor]:
    """The operator's inputs out of tensors by name, gate and up put together. ValueError names what does not fit."""
    operation = OPERATORS[op]
    parts = [name for name in operation.roles if name in PARTS]
    named = {name: tensors[name] for name in operation.inputs if name in tensors}
    if parts and set(parts) <= set(tensors):
        apart = {name: tensors[name] for name in (*parts, *operation.vectors) if name in tensors}
        _alike(op, {name: apart[name] for name in parts})
        named = operation.assemble(apart)
    if missing := [name for name in operation.inputs if name not in named]:
        either = " (or gate and up)" if parts else ""
        raise ValueError(f"{op} takes {', '.join(operation.inputs)}{either}; {', '.join(missing)} is missing")
    _check(operation, named)
    return named


def _check(op: Operator, inputs: Tensors) -> None:
    """ValueError where the tensors are of no call: rows of other shapes or formats, a vector of another width."""
    _alike(op.name, {name: inputs[name] for name in op.rows})
    width = op.width_of(inputs)
    rows = inputs[op.rows[0]]
    for name in op.vectors:
        if tuple(inputs[name].shape) != (width,):
            raise ValueError(f"{op.name}: {name} has shape {tuple(inputs[name].shape)}, not {(width,)}")
        if inputs[name].dtype not in (rows.dtype, torch.float32):
            raise ValueError(f"{op.name}: {name} is {inputs[name].dtype}; allowed: the rows' {rows.dtype}, torch.float32")


def _alike(op: str, rows: Tensors) -> None:
    """ValueError where tensors of rows are not of one shape and format, or have no row."""
    first = next(iter(rows.values()))
    for name, tensor in rows.items():
        if not tensor.ndim or not tensor.shape[-1]:
            raise ValueError(f"{op}: {name} has shape {tuple(tensor.shape)}: no row in it")
        if (tensor.shape, tensor.dtype) != (first.shape, first.dtype):
            found, right = ((t.dtype, tuple(t.shape)) for t in (tensor, first))
            raise ValueError(f"{op}: {name} is {found[0]} {found[1]}, {next(iter(rows))} is {right[0]} {right[1]}")


def _safetensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        from safetensors.torch import load_file
    except ImportError:
        said = f"{path}: needs safetensors, which is not installed: pip install 'numba-kernels[inputs]'"
        raise LackingError(said) from None
    try:
        return load_file(path)
    except MemoryError:
        raise
    except Exception as error:  # whatever a library says of bytes that are no such file
        raise ValueError(f"{path} is no safetensors file: {in_a_line(error)}") from None


def _npz(path: Path) -> dict[str, torch.Tensor]:
    """Arrays of two bytes without a type are bfloat16: so NumPy stores those of ml_dtypes."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: _from_numpy(path, name, arrays[name]) for name in arrays.files}
    except (_NotTaken, MemoryError):
        raise
    except Exception as error:  # NumPy's, the archive's, the decompressor's
        raise ValueError(f"{path} is no .npz file of plain arrays: {in_a_line(error)}") from None


class _NotTaken(ValueError):
    """An array of a type that no operator takes."""


def _from_numpy(path: Path, name: str, array: np.ndarray) -> torch.Tensor:
    if array.dtype == np.dtype("V2"):
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    if array.dtype not in (np.float16, np.float32):
        raise _NotTaken(f"{path}: {name} is {array.dtype}; allowed: {', '.join(FORMATS)}")
    return torch.from_numpy(array)
