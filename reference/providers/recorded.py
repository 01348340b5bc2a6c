"""An operator's formula as a plain torch function: its operations, recorded once over an arithmetic of the provider's.

What a provider times or compiles is then the torch calls alone, without this package's classes around them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from reference.arithmetic import Fp32
from reference.operators import Operator
from reference.operators.contract import Contract

# What torch has of an activation, where it is one operation.
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda gate: F.gelu(gate, approximate="tanh"),
}


class TorchFunctions(Fp32):
    """fp32 with torch's own functions where it has one for an activation, a sigmoid or a mean."""

    def mean_square(self, row: Any) -> Any:
        """mean(row^2)."""
        return row.square().mean(dim=-1, keepdim=True)

    def sigmoid(self, a: Any) -> Any:
        """torch.sigmoid."""
        return torch.sigmoid(a)

    def activate(self, activation: Callable, gate: Any, *parameters: float) -> Any:
        """torch's function of that name, or else the formula."""
        own = ACTIVATIONS.get(activation.__name__)
        return own(gate) if own else activation(self, gate, *parameters)

    def biased(self, weight: Any, contract: Any) -> Any:
        """weight + bias, in fp32."""
        return self.add(weight, contract.weight_bias)


class StoredValues(TorchFunctions):
    """Every operation in the dtype of its operands, as in a module's forward: nothing is loaded to fp32."""

    def load(self, stored: Any) -> Any:
        """The value itself."""
        return stored

    def store(self, value: Any, like: str | None = None) -> Any:
        """The value itself: the operation that made it has rounded it."""
        return value

    def after_every_operation(self) -> Any:
        """This arithmetic."""
        return self


class _Passed:
    """A contract whose numbers are a call's arguments."""

    def __init__(self, contract: Contract, numbers: Mapping[str, Any]) -> None:
        self._contract, self._numbers = contract, numbers

    @property
    def eps(self) -> Any:
        return self._numbers["eps"]

    def value(self, name: str) -> Any:
        return self._numbers[name]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._contract, name)


def record(op: Operator, arithmetic: type[Fp32], contract: Contract) -> Callable:
    """`f(tensors..., parameters...)`, out of place: the output, or the outputs where `op` has several."""
    graph = fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    tensors: dict[str, Any] = {name: fx.Proxy(graph.placeholder(name), tracer) for name in op.inputs}
    numbers = {p.name: fx.Proxy(graph.placeholder(p.name, default_value=contract.value(p.name)), tracer) for p in op.parameters}
    over = arithmetic({name: tensor.dtype for name, tensor in tensors.items()}, op.rows[0])
    # Rows are loaded before gate and up are taken apart: one conversion.
    operands = op.split({name: over.load(tensor) for name, tensor in tensors.items()}).values()
    outputs = op.formula(over, *operands, _Passed(contract, numbers))
    nodes = tuple(output.node for output in outputs)
    end = graph.output(nodes if len(nodes) > 1 else nodes[0])
    graph.eliminate_dead_code()
    _late(graph, nodes, end)
    return fx.GraphModule(torch.nn.Module(), graph).forward


def _late(graph: fx.Graph, stored: Sequence[fx.Node], end: fx.Node) -> None:
    """Loads before their first use, stores at the end: the order in which a user would write it."""
    place = {node: number for number, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.target == "float":
            min(node.users, key=place.__getitem__).prepend(node)
    for node in stored:
        end.prepend(node)
