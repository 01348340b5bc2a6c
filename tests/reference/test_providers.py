"""Providers: names, reasons, signatures, discovery; and adapters against stand-ins of libraries that are not here."""

import inspect
import subprocess
import sys
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint
from types import ModuleType, SimpleNamespace

import pytest
import torch

from reference.arithmetic import evaluate
from reference.contracts import Contract, contract, corners
from reference.operators import OPERATORS
from reference.providers import Provider, Refused, Unavailable, get, huggingface, names, register, registry
from reference.providers.claims import claim
from reference.providers.flashinfer import FlashInfer, FlashInferCuda, FlashInferCute
from reference.providers.layout import as_rows, require_aligned, vector_bytes
from reference.providers.library import LibraryProvider
from reference.providers.quack import Quack
from reference.providers.sglang import SGLang
from reference.providers.torch_plain import TorchPlain
from reference.providers.vllm import Vllm

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
BUILT_IN = (
    "torch",
    "torch-rmsnorm",
    "torch-compile",
    "triton",
    "flashinfer",
    "flashinfer-cuda",
    "flashinfer-cute",
    "hf",
    "liger",
    "quack",
    "vllm",
    "sglang",
)


@pytest.fixture
def fresh_registry(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "_broken", {})


def inputs_of(op, dtype=torch.bfloat16, rows=4, width=16):
    generator = torch.Generator().manual_seed(3)
    shapes = OPERATORS[op].shapes((rows,), width)
    return {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in shapes.items()}


def call(function, op, inputs, eps=1e-6):
    """Runs a provider's function on copies: what `evaluate` would have returned."""
    copies = {name: tensor.clone() for name, tensor in inputs.items()}
    result = function(*OPERATORS[op].arguments(copies, contract(op, eps=eps)))
    if not OPERATORS[op].mutated:
        return {"output": result}
    assert result is None
    return {"output": copies["input"], "residual": copies["residual"]}


# -- names and reasons


def test_the_built_in_providers_are_listed_in_order():
    assert names()[: len(BUILT_IN)] == BUILT_IN


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_provider_satisfies_the_protocol_and_claims_what_the_table_says(name):
    provider = get(name)
    assert isinstance(provider, Provider)
    assert provider.name == name
    for op in OPERATORS:
        claimed = provider.claims(op)
        if isinstance(provider, LibraryProvider) and claimed is not None:
            row = claim(provider.library, op)
            assert (claimed.code, claimed.eps, claimed.weight_bias) == (row.code, 1e-6, OPERATORS[op].weight_bias)


def test_listing_and_asking_imports_no_optional_library():
    code = (
        "import sys, torch; before = set(sys.modules); from reference.providers import get, names;"
        "[get(n).claims(op) for n in names() for op in ('rmsnorm', 'silu_and_mul')];"
        "print([m for m in sys.modules if m in ('triton', 'flashinfer', 'transformers', 'quack', 'vllm')"
        " and m not in before])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["flashinfer", "flashinfer-cute", "liger", "quack", "vllm", "sglang", "triton"])
def test_a_cuda_library_says_that_it_needs_a_cuda_device(name):
    assert "CUDA" in get(name).check(case("rmsnorm"))


class Missing(LibraryProvider):
    name = library = "hf"
    on_record = huggingface.CLAIMS
    modules = ("no_such_library.inside",)
    distribution = "no-such-library"
    needs_cuda = False


def test_a_missing_library_is_a_reason_and_then_an_error():
    provider = Missing()
    assert provider.check(case("rmsnorm")) == "no_such_library is not installed: pip install no-such-library"
    assert provider.version() == "not installed"
    with pytest.raises(Unavailable, match="no_such_library is not installed: pip install no-such-library"):
        provider.function("rmsnorm")


def test_a_library_that_does_not_import_is_a_reason(monkeypatch, tmp_path):
    (tmp_path / "breaks_at_import.py").write_text("raise OSError('libcuda.so.1: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    provider = Missing()
    provider.modules = ("breaks_at_import",)
    assert "OSError: libcuda.so.1" in provider.check(case("rmsnorm"))


def test_an_unknown_provider_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"nobody.*torch, torch-rmsnorm.*torch:CODE"):
        get("nobody")


def installed(monkeypatch, name):
    """The provider, as if its library and a device were here."""
    provider = get(name)
    monkeypatch.setattr(type(provider), "_lacks", lambda self, device: None)
    if name == "flashinfer":
        monkeypatch.setattr(type(provider), "_uses_cuda_norm", lambda self, device: False)
    return provider


def test_an_operator_that_a_library_lacks_has_no_claim_and_a_reason(monkeypatch):
    liger = installed(monkeypatch, "liger")
    assert liger.claims("gelu_and_mul") is None
    assert liger.check(case("gelu_and_mul", "fp16", 8, "cuda")) == "has no gelu_and_mul"
    with pytest.raises(ValueError, match="liger has no gelu_and_mul"):
        liger.function("gelu_and_mul")


@pytest.mark.parametrize(
    ("name", "op", "dtype", "width", "reason"),
    [
        ("liger", "rmsnorm", "bf16", 65537, "up to 65536"),
        ("liger", "rmsnorm", "bf16", 65536, None),
        ("quack", "rmsnorm", "bf16", 111, "odd width"),
        ("quack", "rmsnorm", "fp32", 111, None),
        ("quack", "rmsnorm", "bf16", 110, None),
        ("flashinfer", "silu_and_mul", "fp32", 64, "fp16 and bf16"),
        ("flashinfer", "silu_and_mul", "bf16", 111, None),
        ("sglang", "silu_and_mul", "bf16", 12, "16-byte"),
        ("flashinfer-cuda", "silu_and_mul", "bf16", 64, "has no"),
    ],
)
def test_widths_and_dtypes_that_a_library_cannot_take_are_refused_with_a_reason(monkeypatch, name, op, dtype, width, reason):
    said = installed(monkeypatch, name).check(case(op, dtype, width, "cuda"))
    assert said is None if reason is None else reason in said


def case(op, dtype="bf16", width=64, device="cpu"):
    return SimpleNamespace(op=op, dtype=dtype, width=width, device=device)


@pytest.mark.parametrize(
    ("name", "asked", "reason"),
    [
        ("torch", case("rmsnorm"), None),
        ("torch:S1", case("rmsnorm"), "has no rmsnorm"),
        ("torch-rmsnorm", case("silu_and_mul"), None),
        ("flashinfer", case("rmsnorm"), "flashinfer runs on CUDA devices only"),
        ("torch", case("rmsnorm", device="cuda"), None if torch.cuda.is_available() else "torch sees no CUDA device"),
    ],
)
def test_one_check_says_why_a_call_cannot_run(name, asked, reason):
    assert get(name).check(asked) == reason


def test_a_check_asks_for_the_library_first_then_the_operator_then_dtype_and_width():
    class Narrow(Missing):
        on_record = huggingface.CLAIMS[:1]
        dtypes = (torch.float16,)

        def _refuses(self, op, dtype, width, device):
            return "too wide" if width > 8 else None

    provider = Narrow()
    assert provider.check(case("rmsnorm")) == "no_such_library is not installed: pip install no-such-library"
    provider.modules = ()
    assert provider.check(case("rmsnorm")) == "has no rmsnorm"
    assert provider.check(case("fused_add_rmsnorm")) == "hf does not take torch.bfloat16"
    assert provider.check(case("fused_add_rmsnorm", dtype="fp16")) == "too wide"
    assert provider.check(case("fused_add_rmsnorm", dtype="fp16", width=8)) is None


def test_a_function_has_the_operators_signature_and_takes_its_tensors_by_name():
    function = get("torch-rmsnorm").function("rmsnorm")
    assert str(inspect.signature(function)) == "(input, weight, eps=1e-06)"
    x, weight = torch.randn(2, 8), torch.randn(8)
    assert torch.equal(function(weight=weight, input=x, eps=1e-6), function(x, weight))
    with pytest.raises(TypeError):
        function(x)


# -- torch, under any contract


@pytest.mark.parametrize("op", OPERATORS)
def test_the_torch_provider_follows_any_contract_asked_for(op):
    inputs = inputs_of(op)
    for c in corners(op, eps=1e-3):
        got = call(get("torch").function(op, c), op, inputs, eps=1e-5)
        expected = evaluate(op, inputs, c.with_values({"eps": 1e-5}))
        assert all(torch.equal(got[name], expected[name]) for name in expected)


def test_a_corner_can_be_named():
    assert get("torch:r1w1") is get("torch:R1W1")
    assert get("torch:R1W1").name == "torch:R1W1"
    assert get("torch:R1W1").claims("fused_add_rmsnorm").code == "R1W1"
    assert get("torch:R1W1").claims("rmsnorm") is None
    assert get("torch:S1").check(case("rmsnorm")) == "has no rmsnorm"
    with pytest.raises(ValueError, match="no contract W1"):
        get("torch:W1").function("silu_and_mul")


def test_a_function_writes_into_the_memory_it_was_given_and_nowhere_else():
    buffer = torch.zeros(4, 24, dtype=torch.bfloat16)
    inputs = inputs_of("fused_add_rmsnorm")
    expected = evaluate("fused_add_rmsnorm", inputs, contract("fused_add_rmsnorm"))
    view = buffer[:, 4:20]
    view.copy_(inputs["input"])
    residual, weight = inputs["residual"].clone(), inputs["weight"].clone()
    assert get("torch").function("fused_add_rmsnorm")(view, residual, weight, 1e-6) is None
    assert torch.equal(buffer[:, 4:20], expected["output"])
    assert torch.equal(residual, expected["residual"])
    assert torch.equal(weight, inputs["weight"])
    assert not buffer[:, :4].any()
    assert not buffer[:, 20:].any()


@pytest.mark.parametrize("name", ["torch", "torch-rmsnorm"])
def test_the_native_form_of_an_out_of_place_provider_returns_new_tensors(name):
    inputs = inputs_of("fused_add_rmsnorm")
    before = {n: t.clone() for n, t in inputs.items()}
    assert get(name).in_place is False
    output, residual = get(name).native("fused_add_rmsnorm")(*inputs.values(), 1e-6)
    assert all(torch.equal(inputs[n], before[n]) for n in inputs)
    expected = evaluate("fused_add_rmsnorm", inputs, get(name).claims("fused_add_rmsnorm"))
    assert torch.equal(output, expected["output"])
    assert torch.equal(residual, expected["residual"])


def test_a_provider_with_one_contract_refuses_another():
    with pytest.raises(ValueError, match="torch-rmsnorm follows R1W0 for fused_add_rmsnorm, not R0W0"):
        get("torch-rmsnorm").function("fused_add_rmsnorm", contract("fused_add_rmsnorm", "R0W0"))
    assert get("torch-rmsnorm").function("fused_add_rmsnorm", contract("fused_add_rmsnorm", "R1W0"))


# -- registration and discovery


def named(name):
    provider = TorchPlain()
    provider.name = name
    return provider


def test_a_registered_provider_is_found_and_listed(fresh_registry):
    mine = named("mine")
    register(mine)
    register(mine)
    assert get("mine") is mine
    assert "mine" in names()


@pytest.mark.parametrize("name", ["mine", "flashinfer"])
def test_a_taken_name_is_refused(fresh_registry, name):
    register(named("mine"))
    with pytest.raises(ValueError, match=name):
        register(named(name))


def test_what_is_no_provider_is_refused(fresh_registry):
    with pytest.raises(TypeError, match="no provider"):
        register(SimpleNamespace(name="mine"))


def entry_points_of(monkeypatch, **objects):
    """Makes an installed module `their_package` with `objects`, and an entry point for each."""
    module = ModuleType("their_package")
    for attribute, value in objects.items():
        setattr(module, attribute, value)
    monkeypatch.setitem(sys.modules, "their_package", module)
    entries = [EntryPoint(f"their-{a}", f"their_package:{a}", registry.ENTRY_POINT_GROUP) for a in objects]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries if group == "numba_kernels.providers" else [])


def test_an_installed_package_adds_its_own(fresh_registry, monkeypatch):
    entry_points_of(monkeypatch, instance=named("x"), factory=lambda: named("y"), made=TorchPlain)
    assert names()[-3:] == ("their-instance", "their-factory", "their-made")
    for name in names()[-3:]:
        assert isinstance(get(name), Provider)
        assert get(name) is get(name)


def test_an_entry_point_that_breaks_is_named_with_its_error(fresh_registry, monkeypatch):
    def broken():
        raise ImportError("needs their library")

    entry_points_of(monkeypatch, broken=broken, wrong=lambda: object())
    with pytest.raises(ValueError, match=r"their-broken.*ImportError: needs their library"):
        get("their-broken")
    assert registry.broken_entry_points() == {"their-broken": "ImportError: needs their library"}
    with pytest.raises(ValueError, match="does not give a provider"):
        get("their-wrong")


# -- layouts


def test_rows_are_a_view_or_refused():
    buffer = torch.zeros(2, 3, 8)
    as_rows(buffer, "input")[5, 7] = 1
    assert buffer[1, 2, 7] == 1
    assert as_rows(torch.zeros(8), "input").shape == (1, 8)
    with pytest.raises(Refused, match="input: strides"):
        as_rows(torch.zeros(3, 2, 8).transpose(0, 1), "input")


def test_vectors_divide_the_row():
    assert [vector_bytes(width, 2) for width in (1, 3, 4, 111, 4096)] == [2, 2, 8, 2, 16]
    assert vector_bytes(4096, 2, most=128) == 128


def test_misaligned_addresses_and_strides_are_refused():
    buffer = torch.zeros(64, dtype=torch.bfloat16)
    require_aligned(buffer[:16].view(2, 8), "input", 16)
    with pytest.raises(Refused, match="address is not a multiple of 16"):
        require_aligned(buffer[1:17].view(2, 8), "input", 16)
    with pytest.raises(Refused, match="row stride of 9"):
        require_aligned(buffer[:18].view(2, 9)[:, :8], "input", 16)


# -- adapters against stand-ins with the libraries' signatures


def stand_in(monkeypatch, name, **attributes):
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, loader=None)
    for attribute, value in attributes.items():
        setattr(module, attribute, value)
    monkeypatch.setitem(sys.modules, name, module)


def plain(op, eps=1e-6, **inputs):
    return evaluate(op, inputs, contract(op, eps=eps))


def overwriting(op):
    """`op` with FlashInfer's signature, in place, written apart from the adapters."""

    def add_norm(input, residual, weight, eps=1.0, enable_pdl=None):
        outputs = plain(op, eps, input=input, residual=residual, weight=weight)
        input.copy_(outputs["output"])
        residual.copy_(outputs["residual"])

    def norm(input, weight, eps=1.0, out=None, enable_pdl=None):
        return plain(op, eps, input=input, weight=weight)["output"]

    def gated(input, out=None, enable_pdl=None):
        return plain(op, input=input)["output"]

    if OPERATORS[op].activation:
        return gated
    return add_norm if OPERATORS[op].mutated else norm


def stand_in_flashinfer(monkeypatch, uses_cuda):
    def cuda_kernel(op):
        def add_norm(input, residual, weight, eps, enable_pdl):
            assert input.ndim == 2
            overwriting(op)(input, residual, weight, eps)

        def norm(output, input, weight, eps, enable_pdl):
            output.copy_(overwriting(op)(input, weight, eps))

        return add_norm if OPERATORS[op].mutated else norm

    def rmsnorm_cute(input, weight, out, eps=1.0, weight_bias=5.0, enable_pdl=False):
        op = "gemma_rmsnorm" if weight_bias == 1.0 else "rmsnorm"
        out.copy_(overwriting(op)(input, weight, eps))

    def fused_add_rmsnorm_cute(input, residual, weight, eps=1.0, weight_bias=5.0, enable_pdl=False):
        op = "gemma_fused_add_rmsnorm" if weight_bias == 1.0 else "fused_add_rmsnorm"
        overwriting(op)(input, residual, weight, eps)

    norm_module = SimpleNamespace(**{op: cuda_kernel(op) for op in OPERATORS if not OPERATORS[op].activation})
    stand_in(monkeypatch, "flashinfer", **{op: overwriting(op) for op in OPERATORS})
    stand_in(monkeypatch, "flashinfer.norm", _use_cuda_norm=lambda device: uses_cuda, get_norm_module=lambda: norm_module)
    stand_in(
        monkeypatch,
        "flashinfer.norm.kernels",
        rmsnorm_cute=rmsnorm_cute,
        fused_add_rmsnorm_cute=fused_add_rmsnorm_cute,
    )
    stand_in(monkeypatch, "flashinfer.utils", device_support_pdl=lambda device: False)


def check_adapter(provider, op, shape=(4,)):
    flat = inputs_of(op)
    inputs = {n: t if n == "weight" else t.reshape(*shape, t.shape[-1]) for n, t in flat.items()}
    got = call(provider.function(op), op, inputs, eps=1e-5)
    expected = evaluate(op, inputs, contract(op, provider.library, eps=1e-5))
    for name in expected:
        assert got[name].shape == expected[name].shape
        assert torch.equal(got[name], expected[name])


@pytest.mark.parametrize("uses_cuda", [True, False])
@pytest.mark.parametrize("shape", [(4,), (2, 2)])
@pytest.mark.parametrize("kind", [FlashInfer, FlashInferCuda, FlashInferCute])
@pytest.mark.parametrize("op", OPERATORS)
def test_flashinfers_adapters_pass_rows_eps_and_bias(monkeypatch, kind, op, shape, uses_cuda):
    stand_in_flashinfer(monkeypatch, uses_cuda)
    provider = kind()
    if provider.claims(op) is None:
        assert OPERATORS[op].activation
        return
    check_adapter(provider, op, shape)
    if OPERATORS[op].mutated:
        inputs = inputs_of(op)
        output, residual = provider.native(op)(*inputs.values(), 1e-6)
        assert output is inputs["input"]
        assert residual is inputs["residual"]


def test_flashinfer_is_not_given_what_would_be_misread_or_fault(monkeypatch):
    stand_in_flashinfer(monkeypatch, uses_cuda=True)
    function = FlashInfer().function("fused_add_rmsnorm")
    inputs = inputs_of("fused_add_rmsnorm")
    x, residual, weight = inputs.values()
    with pytest.raises(Refused, match="weight: the library takes"):
        function(x, residual, weight.float(), 1e-6)
    with pytest.raises(Refused, match="no rows"):
        function(x[:0], residual[:0], weight, 1e-6)
    shifted = torch.zeros(65, dtype=x.dtype)[1:].view(4, 16)
    with pytest.raises(Refused, match="residual: the address"):
        function(x, shifted, weight, 1e-6)
    with pytest.raises(Refused, match="inner stride"):
        function(torch.zeros(16, 4, dtype=x.dtype).t(), residual, weight, 1e-6)
    with pytest.raises(Refused, match="ignores strides"):
        FlashInfer().function("silu_and_mul")(torch.zeros(4, 48, dtype=x.dtype)[:, :32])


@pytest.mark.parametrize("shape", [(4,), (2, 2)])
@pytest.mark.parametrize("op", [op for op in OPERATORS if not OPERATORS[op].activation])
def test_quacks_adapter_asks_for_the_residual_and_copies_back(monkeypatch, op, shape):
    def rmsnorm(
        x,
        weight=None,
        bias=None,
        residual=None,
        out_dtype=None,
        residual_dtype=None,
        eps=1.0,
        prenorm=False,
        weight_offset=0.0,
    ):
        assert (bias, out_dtype, residual_dtype, weight_offset) == (None, None, None, OPERATORS[op].weight_bias)
        if residual is None:
            return plain(op, eps, input=x, weight=weight)["output"]
        outputs = plain(op, eps, input=x, residual=residual, weight=weight)
        return (outputs["output"], outputs["residual"]) if prenorm else outputs["output"]

    stand_in(monkeypatch, "quack")
    stand_in(monkeypatch, "quack.rmsnorm", rmsnorm=rmsnorm)
    check_adapter(Quack(), op, shape)


@pytest.mark.parametrize("op", [op for op in OPERATORS if not OPERATORS[op].activation])
def test_sglangs_adapter_passes_rows(monkeypatch, op):
    stand_in(monkeypatch, "sgl_kernel", **{name: overwriting(name) for name in OPERATORS})
    check_adapter(SGLang(), op, (2, 2))


@pytest.mark.parametrize("op", ["fused_add_rmsnorm", "rmsnorm"])
def test_vllms_adapter_passes_rows(monkeypatch, op):
    def fused_add_rms_norm(input, residual, weight, epsilon):
        outputs = evaluate(
            "fused_add_rmsnorm",
            {"input": input, "residual": residual, "weight": weight},
            Contract("R1W0", epsilon),
        )
        input.copy_(outputs["output"])
        residual.copy_(outputs["residual"])

    def rms_norm(out, input, weight, epsilon):
        out.copy_(plain("rmsnorm", epsilon, input=input, weight=weight)["output"])

    stand_in(monkeypatch, "vllm")
    stand_in(monkeypatch, "vllm._custom_ops", fused_add_rms_norm=fused_add_rms_norm, rms_norm=rms_norm)
    check_adapter(Vllm(), op, (2, 2))
