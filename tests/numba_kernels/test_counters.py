"""Which tile counter a launch takes its rows from: never one that another launch may use at the time. With a made-up driver."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from cuda.bindings import driver

from numba_kernels.runtime import counters

NONE = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
ACTIVE = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
SUCCESS = driver.CUresult.CUDA_SUCCESS


@pytest.fixture
def captured(monkeypatch):
    """The handles of streams that are capturing."""
    handles = set()
    monkeypatch.setattr(counters, "_NUMBERS", {})
    monkeypatch.setattr(driver, "cuStreamIsCapturing", lambda handle: (SUCCESS, ACTIVE if int(handle) in handles else NONE))
    return handles


@pytest.mark.usefixtures("captured")
def test_a_stream_keeps_its_counter_and_shares_it_with_no_other():
    first, second = counters.counter_for(0), counters.counter_for(77)
    assert first != second
    assert counters.counter_for(0) == first


def test_each_captured_launch_has_a_counter_of_its_own(captured):
    eager = counters.counter_for(77)
    captured.add(77)
    own = {counters.counter_for(77) for _ in range(5)}
    assert len(own | {eager}) == 6
    captured.clear()
    assert counters.counter_for(77) == eager


@pytest.mark.usefixtures("captured")
def test_the_handle_of_every_threads_own_stream_has_a_counter_in_each_thread():
    given = []

    def ask():
        given.append({counters.counter_for(counters.PER_THREAD) for _ in range(3)})

    for _ in range(3):  # one after another: a thread may get the name of one that has ended, whose work may not have
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert [len(numbers) for numbers in given] == [1, 1, 1]
    assert len(set.union(*given)) == 3


def test_without_a_counter_left_known_streams_keep_theirs(captured, monkeypatch):
    monkeypatch.setattr(counters, "TILE_COUNTERS", 2)
    assert [counters.counter_for(handle) for handle in (71, 72, 73, 71)] == [0, 1, None, 0]
    captured.add(71)
    assert counters.counter_for(71) is None


@pytest.mark.usefixtures("captured")
def test_threads_that_ask_at_once_are_told_the_same():
    asked = [handle for handle in range(100, 300) for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        given = list(pool.map(counters.counter_for, asked))
    assert given[::4] == given[1::4] == given[2::4] == given[3::4]
    assert sorted(set(given)) == list(range(200))


@pytest.mark.usefixtures("captured")
def test_a_driver_that_refuses_is_named(monkeypatch):
    monkeypatch.setattr(driver, "cuStreamIsCapturing", lambda handle: (driver.CUresult.CUDA_ERROR_INVALID_HANDLE, None))
    with pytest.raises(RuntimeError, match="CUDA_ERROR_INVALID_HANDLE"):
        counters.counter_for(1)
