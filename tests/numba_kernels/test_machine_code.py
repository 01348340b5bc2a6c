"""How a kernel that is nowhere stored is compiled. Needs no GPU."""

import gc

import pytest

from numba_kernels.backend import compile as backend
from numba_kernels.backend.machine_code import cached_code

PTX = ".visible .entry some_kernel("


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty disk cache, and an assembler that takes anything."""
    monkeypatch.setenv("NUMBA_KERNELS_CACHE", str(tmp_path))
    monkeypatch.setattr(backend, "assemble", lambda ptx, cc: (b"cubin", "report"))
    return tmp_path


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_collected_after_a_compilation_as_it_was_before(cache, collects):
    def make_ptx():
        assert not gc.isenabled()
        return PTX

    (gc.enable if collects else gc.disable)()
    try:
        assert cached_code("kernel", (9, 0), make_ptx).entry == "some_kernel"
        assert gc.isenabled() == collects
    finally:
        gc.enable()


def test_garbage_is_collected_after_one_that_fails(cache):
    with pytest.raises(RuntimeError, match="no entry in the PTX of kernel"):
        cached_code("kernel", (9, 0), lambda: "")
    assert gc.isenabled()
    assert [*cache.iterdir()] == []


def test_it_is_compiled_once(cache):
    codes = [cached_code("kernel", (9, 0), make_ptx) for make_ptx in (lambda: PTX, lambda: pytest.fail("compiled again"))]
    assert codes[0] == codes[1]
