"""An example: a case together with the values that it is called on, which no seed draws any more once they have been shrunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from difftest.cases.case import Case
from reference.operators.declaration import Tensors


@dataclass(frozen=True, slots=True)
class Example:
    """`values`: by role, on the CPU, in their storage formats: rows x width, or (width,) for a vector."""

    case: Case
    values: Mapping[str, torch.Tensor]

    @classmethod
    def of(cls, case: Case) -> Example:
        """The case with the values that it draws."""
        values = case.operator.split(case.inputs())
        vectors = case.operator.vectors
        return cls(case, {role: v if role in vectors else v.reshape(case.rows, case.width) for role, v in values.items()})

    def inputs(self) -> dict[str, torch.Tensor]:
        """The call's inputs by name, in the shapes of the call."""
        shapes = self.case.operator.shapes(self.case.lead, self.case.width)
        return {name: v.reshape(shapes[name]).to(self.case.device) for name, v in self._operator_inputs().items()}

    def plain_value(self, role: str) -> float:
        """What each element of a role is at its plainest: 1, and of a weight what makes it 1 once the bias is added."""
        return 1.0 - self.case.operator.weight_bias if role in self.case.operator.vectors else 1.0

    def with_rows(self, axis: int, kept: torch.Tensor) -> Example:
        """The entries `kept` along an axis of the shape before the row."""
        lead = self.case.lead
        shorter = (*lead[:axis], len(kept), *lead[axis + 1 :])
        return self._mapped(
            replace(self.case, lead=shorter),
            lambda rows: rows.reshape(*lead, -1).index_select(axis, kept).reshape(-1, self.case.width),
            lambda vector: vector,
        )

    def with_columns(self, kept: torch.Tensor) -> Example:
        """The columns `kept`, in that order."""
        return self._mapped(replace(self.case, width=len(kept)), lambda rows: rows[:, kept], lambda vector: vector[kept])

    def with_values(self, role: str, values: torch.Tensor) -> Example:
        """Other values of one role, of the same shape and format."""
        return replace(self, values={**self.values, role: values})

    def with_case(self, case: Case) -> Example:
        """Another call on the same values, in the formats of that call."""
        vectors = case.operator.vectors
        formats = {role: case.weight_format if role in vectors else case.format for role in self.values}
        return Example(case, {role: v.to(formats[role].torch) for role, v in self.values.items()})

    def _operator_inputs(self) -> Tensors:
        return self.case.operator.assemble(self.values)

    def _mapped(self, case: Case, rows: Callable, vector: Callable) -> Example:
        vectors = case.operator.vectors
        return Example(case, {role: (vector if role in vectors else rows)(v) for role, v in self.values.items()})
