"""The launch's compiled code, in C and by Numba: what it hands to the driver, which is a function of Python's here."""

import ctypes
import importlib.util
import shutil
import subprocess
import sysconfig
from importlib.machinery import ExtensionFileLoader
from pathlib import Path

import numpy as np
import pytest

from numba_kernels.runtime import jitted_launcher, launcher, packing

SOURCE = Path(launcher.__file__).with_name("_launcher.c")
REFUSED = 701
DRIVER = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
ADDRESSES = (2**47 + 16, 1024, 2048, 16)


@pytest.fixture(scope="module")
def in_c(tmp_path_factory):
    """The extension, built here: an installation may have gone without."""
    compiler, header = shutil.which("cc"), Path(sysconfig.get_paths()["include"])
    if compiler is None or not (header / "Python.h").exists():
        pytest.skip("no C compiler, or not Python's header")
    built = tmp_path_factory.mktemp("launcher") / "_launcher.so"
    words = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{header}", SOURCE, "-o", built]
    subprocess.run(words, check=True)
    loader = ExtensionFileLoader("_launcher", str(built))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("_launcher", loader))
    loader.exec_module(module)
    return module


@pytest.fixture(params=["C", "Numba"])
def launch_of(request):
    """``launch_of(addresses)``: the launch for so many, of each kind."""
    if request.param == "Numba":
        return jitted_launcher.LAUNCH.__getitem__
    module = request.getfixturevalue("in_c")
    return lambda addresses: module.launch


@pytest.mark.parametrize("addresses", [4, 2])
def test_the_driver_gets_the_configuration_with_the_stream_and_every_parameter(addresses, launch_of):
    """And what it answers comes back. The packed arguments are left as they were."""
    seen = {}

    @DRIVER
    def driver(config, function, parameters, extra):
        seen.update(config=np.ctypeslib.as_array((ctypes.c_int64 * packing.CONFIG_WORDS).from_address(config)).tolist())
        pointers = (ctypes.c_void_p * (addresses + 4)).from_address(parameters)
        seen.update(parameters=[ctypes.c_int64.from_address(pointer).value for pointer in pointers])
        seen.update(function=function, extra=extra)
        return REFUSED

    constants = [-5, 2**62, 7, 8]
    entry = ctypes.cast(driver, ctypes.c_void_p).value
    unread = [0] * (packing.MOST_CONSTANTS - len(constants))
    packed = np.array([entry, 77, *range(10, 10 + packing.CONFIG_WORDS), *constants, *unread], np.int64)
    before = packed.copy()
    assert launch_of(addresses)(packed.ctypes.data, 2**46, *ADDRESSES[:addresses]) == REFUSED
    config = list(range(10, 10 + packing.CONFIG_WORDS))
    config[packing.STREAM_WORD] = 2**46
    assert seen == {"config": config, "function": 77, "extra": None, "parameters": [*ADDRESSES[:addresses], *constants]}
    assert (packed == before).all()


@pytest.mark.parametrize("given", [(), (1,), (1, 2, 3, 4, 5, 6, 7), (1, 2, "x"), (1, 2**64, 3)])
def test_the_extension_refuses_what_is_no_launch(given, in_c):
    with pytest.raises((TypeError, OverflowError)):
        in_c.launch(*given)


@pytest.mark.parametrize("addresses", [4, 2])
def test_without_the_extension_numba_makes_the_launch(addresses, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "numba_kernels.runtime._launcher", None)
    assert launcher.entry.__wrapped__(addresses) is jitted_launcher.LAUNCH[addresses]
