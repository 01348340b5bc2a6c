"""Which kernel is built where a GPU holds no cluster of the size that tuning chose, and where it runs. With a made-up driver."""

import ctypes
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from cuda.bindings.driver import CUresult

from numba_kernels import tuning
from numba_kernels.kernels.config import NormOperation
from numba_kernels.plans import NormPlan
from numba_kernels.runtime import launch

OPERATION = NormOperation(adds_residual=True, storage="bf16", weight="bf16", rounds_sum=False, rounds_norm=False, weight_bias=0.0)


@pytest.mark.parametrize("rows", [1, 4096])
@pytest.mark.parametrize("width", [24576, 65536, 100003, 262144])
@pytest.mark.parametrize("holds", [1, 2, 4, 8, 16])
def test_the_largest_cluster_that_fits_is_taken(width, rows, holds, monkeypatch):
    asked = []

    def resident_grid(device, function, config, rows, shared):
        asked.append(config.cluster)
        return (config.cluster if config.cluster <= holds else 0, 1, 1)

    target = tuning.Target("sm_90", 227 * 1024, 132, clusters=16, pdl=True, bulk_prefetch=True)
    monkeypatch.setattr(launch, "load", lambda device, kernel: 0)
    monkeypatch.setattr(launch, "target", lambda device: target)
    monkeypatch.setattr(launch, "device_count", lambda: 1)
    monkeypatch.setattr(launch, "resident_grid", resident_grid)
    monkeypatch.setattr(launch.packing, "pack_arguments", lambda *_: np.zeros(1, np.int64))
    plan = NormPlan(OPERATION, rows, width, width, width, width, 0x358637BD)
    built = launch.Prepared(plan, 0, True)._build((0, 0, 0, 0), target)
    assert asked == sorted(asked, reverse=True)
    assert len(asked) <= 4
    assert all(cluster > holds for cluster in asked[:-1])
    in_clusters = bool(asked) and asked[-1] <= holds
    assert isinstance(built, launch._PersistentVariant) == (in_clusters and rows > 1)  # those of a single row end with it


def test_a_configuration_that_is_given_and_fits_no_device_is_named_and_not_tried_for_ever(monkeypatch):
    target = tuning.Target("sm_90", 227 * 1024, 132, clusters=16, pdl=True, bulk_prefetch=True)
    monkeypatch.setattr(launch, "load", lambda device, kernel: 0)
    monkeypatch.setattr(launch, "target", lambda device: target)
    monkeypatch.setattr(launch, "device_count", lambda: 1)
    monkeypatch.setattr(launch, "resident_grid", lambda *_: (0, 1, 1))
    config = tuning.norm_config(OPERATION, 65536, 4096, target, access=16, weight_access=16, pdl=True)
    plan = NormPlan(OPERATION, 4096, 65536, 65536, 65536, 65536, 0x358637BD, config)
    with pytest.raises(RuntimeError, match=f"device 0 holds no cluster of {config.cluster} blocks of {config.threads} threads"):
        launch.Prepared(plan, 0, True)._build((0, 0, 0, 0), target)


class TwoDevices:
    """A driver with two devices: the stack of current contexts of each thread, and what was launched in which."""

    CUresult = CUresult

    def __init__(self):
        self.threads = threading.local()
        self.pushes, self.launches = [], []
        self.answers = []  # of the next launches; then success

    def stack(self):
        return self.threads.__dict__.setdefault("stack", [])

    def context(self, device):
        return 100 + device

    def cuCtxGetCurrent(self):
        return CUresult.CUDA_SUCCESS, self.stack()[-1] if self.stack() else 0

    def cuCtxPushCurrent(self, context):
        self.pushes.append(context)
        self.stack().append(context)

    def cuCtxPopCurrent(self):
        self.stack().pop()

    def enter(self, packed, stream, *addresses):
        function = np.ctypeslib.as_array((ctypes.c_int64 * 2).from_address(packed))[launch.packing.FUNCTION]
        self.launches.append((int(function), self.cuCtxGetCurrent()[1], stream, addresses))
        return int(self.answers.pop(0)) if self.answers else 0

    @contextmanager
    def current(self, device):
        self.stack().append(self.context(device))
        yield
        assert self.stack().pop() == self.context(device)  # as it was
        assert not self.stack()


@pytest.fixture
def two_devices(monkeypatch):
    devices = TwoDevices()
    monkeypatch.setattr(launch, "driver", devices)
    monkeypatch.setattr(launch, "_primary_context", devices.context)
    monkeypatch.setattr(launch, "device_count", lambda: 2)
    monkeypatch.setattr(launch, "target", lambda device: tuning.Target("sm_90", 227 * 1024, 132, clusters=16, pdl=True))
    monkeypatch.setattr(launch, "load", lambda device, kernel: 7 + device)
    monkeypatch.setattr(launch.packing, "driver_entry", lambda: 0)
    monkeypatch.setattr(launch.launcher, "entry", lambda addresses: devices.enter)
    return devices


def prepared(device):
    return launch.Prepared(NormPlan(OPERATION, 4, 64, 64, 64, 64, 0x358637BD), device, None)


ADDRESSES = (16, 1024, 2048, 16)


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("current", [0, 1])
def test_a_launch_runs_on_its_own_device_and_leaves_the_current_one(device, current, two_devices):
    mine = prepared(device)
    with two_devices.current(current):
        for _ in range(2):
            mine.launch(ADDRESSES, 0, 77)
    assert two_devices.launches == [(7 + device, 100 + device, 77, ADDRESSES)] * 2
    assert two_devices.pushes == ([] if device == current else [100 + device] * 2)


@pytest.mark.parametrize("count", [1, 2])
def test_a_thread_that_has_no_context_yet_is_given_the_devices(count, two_devices, monkeypatch):
    monkeypatch.setattr(launch, "device_count", lambda: count)
    two_devices.answers = [CUresult.CUDA_ERROR_INVALID_CONTEXT] * (count == 1)
    prepared(0).launch(ADDRESSES, 0, 0)
    assert two_devices.launches[-1] == (7, 100, 0, ADDRESSES)
    assert not two_devices.stack()


@pytest.mark.parametrize("current", [0, 1])
def test_a_launch_that_the_driver_refuses_is_named_and_leaves_the_current_device(current, two_devices):
    two_devices.answers = [CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES]
    with two_devices.current(current), pytest.raises(RuntimeError, match="LAUNCH_OUT_OF_RESOURCES"):
        prepared(1).launch(ADDRESSES, 0, 0)
    assert len(two_devices.launches) == 1


def test_two_threads_launch_on_two_devices_at_once(two_devices):
    each, ready = [prepared(device) for device in (0, 1)], threading.Barrier(2)

    def work(device):
        with two_devices.current(1 - device):
            ready.wait()
            for _ in range(200):
                each[device].launch(ADDRESSES, 0, device)

    threads = [threading.Thread(target=work, args=(device,)) for device in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(two_devices.launches) == 400
    assert set(two_devices.launches) == {(7 + device, 100 + device, device, ADDRESSES) for device in (0, 1)}


def test_the_counter_of_a_stream_is_asked_for_on_the_launchs_device(two_devices, monkeypatch):
    asked = []
    monkeypatch.setattr(launch, "counter_for", lambda stream: asked.append((stream, two_devices.cuCtxGetCurrent()[1])) or 5)
    monkeypatch.setattr(launch, "resident_grid", lambda device, function, config, rows, shared: (config.cluster, 1, 1))
    plan = NormPlan(OPERATION, 4096, 65536, 65536, 65536, 65536, 0x358637BD)
    with two_devices.current(0):
        launch.Prepared(plan, 1, None).launch(ADDRESSES, 0, 9)
    assert asked == [(9, 101)]
    assert two_devices.launches == [(8, 101, 9, ADDRESSES)]
