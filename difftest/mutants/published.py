"""The comparisons of other projects' own tests, with their numbers and their inputs: what they let through.

Read in November and December 2026; each names the repository, the files and the commits. A test compares with a reference of
its own; here every one is given plain torch under the case's contract (the provider `torch`) as the expected values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch

from difftest.cases.case import Case
from difftest.mutants.cases import inputs_of
from difftest.run.call import Tensors, call
from reference import providers
from reference.contracts import contract
from reference.formats import FORMATS
from reference.operators import OPERATORS, Operator, operator

NORMS = tuple(name for name, op in OPERATORS.items() if op.activation is None)
GATED = tuple(name for name, op in OPERATORS.items() if op.activation is not None)
HALVES = tuple(name for name in GATED if not operator(name).parameters)
PARAMETERS = tuple(name for name in GATED if operator(name).parameters)

By = Mapping[str, tuple[float, float]]
"""dtype -> rtol, atol."""


def close(actual: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float) -> bool:
    """assert_close and allclose of torch: |a - e| <= atol + rtol |e| everywhere; equal infinities pass, a NaN fails."""
    return torch.equal(actual, expected) or bool(torch.isclose(actual, expected, rtol=rtol, atol=atol).all())


def close_either(actual: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float) -> bool:
    """flashinfer-bench: an element fails where both its absolute and its relative error are too large; an Inf or a NaN fails."""
    if not bool(actual.isfinite().all()):
        return False
    if torch.equal(actual, expected):
        return True
    a, e = actual.float(), expected.float()
    apart = (a - e).abs()
    return not bool(((apart > atol) & (apart / (e.abs() + 1e-8) > rtol)).any())


@dataclass(frozen=True, slots=True)
class Normal:
    """Unit-normal rows, over twice the width with `shrink` (norms alone); a normal weight with that mean and deviation, the
    operator's bias taken off a mean that is not 0.
    """

    mean: float = 0.0
    deviation: float = 1.0
    shrink: bool = False

    def draw(self, op: Operator, rows: int, width: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Values by role, float32."""
        scale = 1 / (2 * width) if self.shrink and op.vectors else 1.0
        values = {role: scale * torch.randn(rows, width, generator=generator) for role in op.roles}
        mean = self.mean - op.weight_bias if self.mean else 0.0
        return values | {name: mean + self.deviation * torch.randn(width, generator=generator) for name in op.vectors}


@dataclass(frozen=True, slots=True)
class Published:
    """A project's comparison. `tolerances`: operator -> dtype -> (rtol, atol); what is not in it the project does not test.

    `rows`, `widths`, `inputs`: those of its tests, of those with up to 100 rows and widths up to 8192;
    none where it is no project's test.
    """

    name: str
    source: str
    tolerances: Mapping[str, By]
    rows: tuple[int, ...]
    widths: tuple[int, ...]
    inputs: Normal = Normal()
    passes: Callable[[torch.Tensor, torch.Tensor, float, float], bool] = close

    def tests(self, op: str, dtype: str) -> bool:
        """Whether the project tests the operator in that dtype."""
        return dtype in self.tolerances.get(op, {})

    def lets_through(self, case: Case, outputs: Tensors, expected: Tensors) -> bool:
        """Whether the comparison passes on every output."""
        rtol, atol = self.tolerances[case.op][case.dtype]
        return all(self.passes(outputs[name], expected[name], rtol, atol) for name in case.operator.outputs)

    def own_calls(self, op: str, code: str) -> Iterator[tuple[Case, Tensors]]:
        """The project's own shapes, as cases, with inputs as it draws them."""
        which = operator(op)
        for dtype in self.tolerances.get(op, {}):
            for number, (rows, width) in enumerate((r, w) for r in self.rows for w in self.widths):
                values = self.inputs.draw(which, rows, width, torch.Generator().manual_seed(number))
                inputs = {name: tensor.to(FORMATS[dtype].torch) for name, tensor in which.assemble(values).items()}
                yield Case(op, dtype, (rows,), width, "normal", number, contract(op, code)), inputs


def _all(ops: tuple[str, ...], **by_dtype: tuple[float, float]) -> dict[str, By]:
    return dict.fromkeys(ops, by_dtype)


def _same(number: float) -> tuple[float, float]:
    return number, number


PUBLISHED = (
    Published(
        "torch.testing.assert_close",
        "pytorch/pytorch, torch/testing/_comparison.py: its defaults",
        _all(NORMS + GATED, fp16=(1e-3, 1e-5), bf16=(1.6e-2, 1e-5), fp32=(1.3e-6, 1e-5)),
        rows=(),
        widths=(),
    ),
    Published(
        "FlashInfer",
        "flashinfer-ai/flashinfer, tests/utils/test_norm.py (01fcf9d), test_activation.py (0ed8d04)",
        _all(NORMS, fp16=_same(1e-3)) | _all(HALVES, fp16=_same(1e-3), bf16=_same(1e-2)),
        rows=(1, 19, 99),
        widths=(111, 500, 1024, 3072, 3584, 4096, 8192),
    ),
    Published(
        "vLLM",
        "vllm-project/vllm, tests/kernels/core/test_layernorm.py (041b9f5), test_activation.py (06e570e), allclose_default.py",
        _all(NORMS, fp16=_same(1e-2), bf16=_same(1e-2), fp32=_same(1e-2))
        | _all(HALVES, fp16=_same(0.0), bf16=_same(0.0), fp32=_same(0.0))
        | _all(PARAMETERS, fp16=(2e-3, 1e-3), bf16=(2e-2, 1e-3), fp32=(1.3e-6, 1e-5)),
        rows=(7, 83),
        widths=(8, 512, 768, 769, 5120, 5125, 8192),
        inputs=Normal(1.0, 0.1, shrink=True),
    ),
    Published(
        "Liger",
        "linkedin/Liger-Kernel, test/transformers/test_rms_norm.py (af35a6c), test_fused_add_rms_norm.py (0d18368), "
        "test_swiglu.py (77ff1a9), test_geglu.py (da1e92d)",
        _all(NORMS, fp32=(1e-6, 1e-4), bf16=(2e-2, 2e-1))
        | {
            "silu_and_mul": {"fp32": (1e-5, 1e0), "bf16": (1e-2, 1e4)},
            "gelu_tanh_and_mul": {"fp32": (2e-6, 1e0), "bf16": (6e-3, 1e4)},
        },
        rows=(4, 16, 63),
        widths=(8, 41, 123, 512),
        inputs=Normal(1.0, 0.0),
    ),
    Published(
        "quack",
        "Dao-AILab/quack, tests/test_rmsnorm.py (c227eb5)",
        _all(NORMS, fp16=(1e-3, 1e-2), bf16=(1e-3, 1e-1), fp32=(1e-3, 1e-4)),
        rows=(1, 37),
        widths=(192, 256, 512, 760, 1024, 1128, 2048, 4096, 8192),
    ),
    Published(
        "KernelBench",
        "ScalingIntelligence/KernelBench, src/kernelbench/eval.py (601b980); its level 1 norm has 64 features and no weight",
        _all(NORMS + GATED, fp16=_same(1e-2), bf16=_same(1e-2), fp32=_same(1e-4)),
        rows=(16, 100),
        widths=(64,),
        inputs=Normal(1.0, 0.0),
    ),
    Published(
        "flashinfer-bench",
        "flashinfer-ai/flashinfer-bench, flashinfer_bench/bench/config.py (1039e39), utils.py (00a1ec8), evaluators/default.py",
        _all(NORMS + GATED, fp16=_same(1e-2), bf16=_same(1e-2), fp32=_same(1e-2)),
        rows=(1, 7, 64),
        widths=(128, 4096, 7168),
        passes=close_either,
    ),
)


@lru_cache(maxsize=1024)
def expected(case: Case) -> Tensors:
    """What plain torch gives under the case's contract. A right kernel has this, or a value next to it."""
    return expected_of(case, inputs_of(case))


def expected_of(case: Case, inputs: Tensors) -> Tensors:
    """The same, of inputs that are given."""
    return call(case.plain(), providers.get("torch").function(case.op, case.contract), inputs).outputs


@lru_cache(maxsize=8192)
def says_something(project: str, case: Case) -> bool:
    """Whether the expected values pass beside themselves, and there are any."""
    each = next(each for each in PUBLISHED if each.name == project)
    return bool(case.rows) and each.lets_through(case, expected(case), expected(case))


@dataclass(slots=True)
class Witness:
    """Which of the comparisons have caught one entry so far, on the tester's own cases and on each project's inputs.

    A case on which the expected values don't pass beside themselves (a NaN that is right) says nothing, and is left out.
    """

    op: str
    on_cases: dict[str, bool]
    on_its_own: dict[str, bool]

    @classmethod
    def of(cls, op: str) -> Witness:
        """Of an entry of that operator: the projects that test it, nothing caught yet."""
        names = [each.name for each in PUBLISHED if op in each.tolerances]
        return cls(op, dict.fromkeys(names, False), {each.name: False for each in PUBLISHED if each.name in names and each.rows})

    def waits_for(self, case: Case) -> list[Published]:
        """The projects that test such a case and have not caught the entry yet."""
        return [
            each
            for each in PUBLISHED
            if not self.on_cases.get(each.name, True) and each.tests(case.op, case.dtype) and says_something(each.name, case)
        ]

    def see(self, case: Case, outputs: Tensors) -> None:
        """Holds one case's outputs to each comparison that has not caught the entry yet. No outputs: all catch it."""
        for each in self.waits_for(case):
            self.on_cases[each.name] = not outputs or not each.lets_through(case, outputs, expected(case))

    def visit(self, function: Callable, code: str) -> None:
        """Calls the entry on every project's own inputs, until its comparison catches it."""
        for each in PUBLISHED:
            if each.name in self.on_its_own:
                self.on_its_own[each.name] = any(self._caught(each, function, *own) for own in _own(each.name, self.op, code))

    @staticmethod
    def _caught(project: Published, function: Callable, case: Case, inputs: Tensors, right: Tensors) -> bool:
        outputs = call(case, function, inputs).outputs
        return not outputs or not project.lets_through(case, outputs, right)


@lru_cache(maxsize=len(PUBLISHED))
def _own(project: str, op: str, code: str) -> list[tuple[Case, Tensors, Tensors]]:
    """A project's own calls with what is expected of them: one operator's at a time, as entries come."""
    each = next(each for each in PUBLISHED if each.name == project)
    return [(case, inputs, expected_of(case, inputs)) for case, inputs in each.own_calls(op, code)]
