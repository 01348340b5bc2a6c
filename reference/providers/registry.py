"""The registry of providers: built-in ones, registered ones, and entry points of installed packages."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from inspect import isclass
from typing import cast

from reference.operators import OPERATORS
from reference.providers.flashinfer import FlashInfer, FlashInferCuda, FlashInferCute
from reference.providers.huggingface import HuggingFace
from reference.providers.liger import Liger
from reference.providers.protocol import Provider
from reference.providers.quack import Quack
from reference.providers.sglang import SGLang
from reference.providers.torch_compile import TorchCompile
from reference.providers.torch_eager import TorchEager
from reference.providers.torch_plain import TorchPlain
from reference.providers.triton import TritonKernels
from reference.providers.vllm import Vllm

ENTRY_POINT_GROUP = "numba_kernels.providers"

# In the order in which they are listed.
_BUILT_IN: dict[str, Callable[[], Provider]] = {
    made_by.name: made_by
    for made_by in (
        TorchEager,
        TorchCompile,
        TritonKernels,
        FlashInfer,
        FlashInferCuda,
        FlashInferCute,
        HuggingFace,
        Liger,
        Quack,
        Vllm,
        SGLang,
    )
}
_BUILT_IN = {"torch": TorchPlain, **_BUILT_IN}
_CORNERS = tuple(dict.fromkeys(code for op in OPERATORS.values() for code in op.codes))

_registered: dict[str, Provider] = {}
_broken: dict[str, str] = {}


def register(provider: Provider) -> None:
    """Adds `provider` under its name. ValueError when the name is taken by another one; TypeError for no provider."""
    if not isinstance(provider, Provider):
        raise TypeError(f"{provider!r} is no provider: it lacks part of the protocol")
    taken = _registered.get(provider.name)
    if taken is not None and taken is not provider:
        raise ValueError(f"a provider named {provider.name!r} is already registered")
    if taken is None and provider.name in _BUILT_IN:
        raise ValueError(f"{provider.name!r} is the name of a built-in provider")
    _registered[provider.name] = provider


def get(name: str) -> Provider:
    """The provider of that name: built-in, `torch:CODE`, registered, or an entry point's; made once.

    Raises ValueError, with the list of names, for an unknown one, and for an entry point that does not load.
    """
    if name not in _registered:
        provider = _make(name)
        if not isinstance(provider, Provider):
            raise ValueError(f"the entry point {name!r} does not give a provider: it lacks part of the protocol")
        _registered[name] = provider
    return _registered[name]


def names() -> tuple[str, ...]:
    """Every name that `get` takes, short of the `torch:CODE` spellings."""
    plain = (name for name in _registered if not name.startswith("torch:"))
    return tuple(dict.fromkeys((*_BUILT_IN, *plain, *_entry_points())))


def known_elsewhere(name: str) -> bool:
    """Whether another process finds the same under that name: not what `register` added here alone."""
    return name in _BUILT_IN or name.partition(":")[0] in _BUILT_IN or name in _entry_points()


def broken_entry_points() -> dict[str, str]:
    """Entry points that were tried and did not load, with their errors."""
    return dict(_broken)


def _make(name: str) -> Provider:
    if name in _BUILT_IN:
        return _BUILT_IN[name]()
    library, _, code = name.partition(":")
    if library == "torch" and code.upper() in _CORNERS:
        if code != code.upper():
            return get(f"torch:{code.upper()}")
        return TorchPlain(code)
    found = _entry_points()
    if name not in found:
        raise ValueError(f"unknown provider {name!r}; known: {', '.join(names())}, torch:CODE")
    try:
        loaded = found[name].load()
        return cast(Provider, loaded() if isclass(loaded) or not isinstance(loaded, Provider) else loaded)
    except Exception as error:  # a foreign package may raise anything while it is imported
        _broken[name] = f"{type(error).__name__}: {error}"
        raise ValueError(f"the provider {name!r} of {found[name].value} does not load: {_broken[name]}") from error


def _entry_points() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
