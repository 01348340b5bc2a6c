"""What a family of inputs draws from: the shape, the formats and the one random stream of a case."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from reference.formats import Format
from reference.operators import Operator
from reference.operators.contract import Contract


@dataclass(frozen=True, slots=True)
class Draw:
    """What a regime draws for: the operator and its contract, rows x width, the storage format and the random stream."""

    op: Operator
    contract: Contract
    rows: int
    width: int
    dtype: Format
    generator: torch.Generator

    @property
    def roles(self) -> tuple[str, ...]:
        """What to fill with rows: input and residual, or gate and up, or input alone."""
        return self.op.roles

    def normal(self) -> torch.Tensor:
        """Unit-normal rows x width, float32."""
        return torch.randn(self.rows, self.width, generator=self.generator)

    def uniform(self, low: float, high: float) -> torch.Tensor:
        """Uniform rows x width in [low, high), float32."""
        return low + (high - low) * torch.rand(self.rows, self.width, generator=self.generator)

    def sign(self) -> torch.Tensor:
        """Rows x width of -1 and 1."""
        return 2.0 * torch.randint(0, 2, (self.rows, self.width), generator=self.generator) - 1.0

    def weight(self) -> torch.Tensor:
        """A weight, (width,), float32: the effective one is about 1, and never all ones."""
        return 1.0 - self.op.weight_bias + 0.3 * torch.randn(self.width, generator=self.generator)

    def one_of(self, count: int) -> torch.Tensor:
        """For each column a whole number below `count`, (width,)."""
        return torch.randint(0, count, (self.width,), generator=self.generator)

    def tile(self, row: tuple[float, ...]) -> torch.Tensor:
        """One row: `row` repeated along the width and cut to it."""
        repeats = -(-self.width // len(row))
        return torch.tensor(row).repeat(repeats)[: self.width]
