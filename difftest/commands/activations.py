"""`difftest --inputs`: a file's tensors, real activations say, in place of what regimes draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from difftest.cases import file
from difftest.cases.case import FILE, Case
from difftest.cases.given import File
from difftest.errors import UsageError
from reference.contracts import Contract
from reference.formats import of
from reference.operators import operator


def cases(
    path: Path, contracts: Mapping[str, Contract], named: bool, dtypes: Sequence[str], widths: Sequence[int], device: str
) -> tuple[list[Case], list[str]]:
    """A case of each operator whose inputs are in the file, and the operators that are left out, each with its reason.

    `named`: the operators were asked for, each of them. `dtypes`, `widths`: those that the file may hold; empty: any. UsageError,
    one line, for a file that can't be read, or whose tensors fit no call that was asked for.
    """
    try:
        sha256 = file.digest(path)
        tensors = file.load(path, sha256)
    except ValueError as error:
        raise UsageError(f"--inputs: {error}") from None
    found, left_out = [], []
    for op, held_to in contracts.items():
        try:
            case = _case(op, held_to, file.inputs_of(op, tensors), File(op, str(path.resolve()), sha256), device)
        except ValueError as error:
            if named:
                raise UsageError(f"--inputs: {path}: {error}") from None
            left_out.append(str(error))
            continue
        if dtypes and case.dtype not in dtypes:
            raise UsageError(f"--dtypes: {path} holds {case.dtype}, not {', '.join(dtypes)}")
        if widths and case.width not in widths:
            raise UsageError(f"--widths: {path} holds rows of {case.width}, not of {', '.join(map(str, widths))}")
        found.append(case)
    if not found:
        raise UsageError(f"--inputs: {path} holds {', '.join(tensors) or 'nothing'}: the inputs of no operator")
    return found, left_out


def _case(op: str, held_to: Contract, inputs: Mapping[str, torch.Tensor], given: File, device: str) -> Case:
    declared = operator(op)
    rows = inputs[declared.rows[0]]
    dtype = of(rows.dtype).name
    formats = {of(inputs[name].dtype).name for name in declared.vectors} - {dtype}
    lead = tuple(rows.shape[:-1])
    return Case(
        op,
        dtype,
        lead,
        declared.width_of(inputs),
        FILE,
        0,
        held_to,
        weight_dtype=next(iter(formats), None),
        device=device,
        origin="file",
        given=given,
    )
