"""What a thread does for its share of a row, whoever has the rest: load it, add its squares, scale it, and say what comes next.

``values`` is the thread's share in fp32, ``gains`` what it has of the weight. ``x_mine`` and its like are 64-bit positions of the
thread's first vector; where its other vectors lie is said in 32 bits from there, and those are constants once loops are unrolled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, float32, int32, int64

from ..backend.arithmetic import fma, keep_if, rsqrt, sum_squares
from ..backend.conversions import float_from_bits, make_narrow, make_widen, word_type, words_in
from ..backend.dependent_launch import release_dependents, wait_for_predecessor
from ..backend.memory import make_get, make_load, make_load_if, make_shared_load, make_shared_store, make_store, prefetch_l2, put
from ..formats import FORMATS, Format
from .config import NormConfig, NormOperation
from .rounding import make_hidden, make_scaled


def make_ownership(config: NormConfig) -> tuple[Callable[..., Any], ...]:
    """Where a thread's vectors lie in a row: tile by warp, then one after the other, a vector a lane. All in 32 bits.

    ``first_of(warp, lane)`` is the first element of its first vector, ``offset_of(i)`` how far its ``i``-th lies from there.
    ``inside(i, room)`` tells whether that vector lies in the row, ``room`` elements of which lie from the first vector on.
    """
    PER_LANE, WARPS, EXACT, VECTOR = config.vectors_per_lane, config.warps * config.cluster, config.exact, config.vector

    @cuda.jit(device=True, inline="always")
    def first_of(warp, lane):
        return int32((warp * (PER_LANE * 32) + lane) * VECTOR)

    @cuda.jit(device=True, inline="always")
    def offset_of(i):
        return int32(((i // PER_LANE) * (WARPS * PER_LANE) + i % PER_LANE) * (32 * VECTOR))

    @cuda.jit(device=True, inline="always")
    def inside(i, room):
        return EXACT or offset_of(i) < room

    return first_of, offset_of, inside


# --- load -----------------------------------------------------------------------------------------------------------------


def make_load_inside(fmt: Format, config: NormConfig, access: int) -> Callable[..., Any]:
    """``load_inside(buffer, start, offset, inside) -> words``: the vector ``offset`` elements past the thread's first.

    Of one that is not inside the row: in a row of several warps no access, and zeros, for whose vector would be loaded may be
    storing it; in a row of one warp what ``offset`` says, which the caller has led back into the row.
    """
    load = make_load(fmt, config.vector, access)
    if config.exact or config.in_a_warp:

        @cuda.jit(device=True, inline="always")
        def load_inside(buffer, start, offset, inside):
            return load(buffer, start, offset)

    else:
        load_if = make_load_if(fmt, config.vector, access)

        @cuda.jit(device=True, inline="always")
        def load_inside(buffer, start, offset, inside):
            return load_if(buffer, start, offset, inside)

    return load_inside


def make_load_vector(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    """``load_vector(x, x_mine, residual, residual_mine, offset, inside) -> h``: x (+ residual) in fp32; else zeros."""
    storage = FORMATS[operation.storage]
    load, widen = make_load_inside(storage, config, config.access), make_widen(storage, config.vector)
    hidden, ADDS, BACK = make_hidden(operation, config.vector), operation.adds_residual, config.in_a_warp and not config.exact

    @cuda.jit(device=True, inline="always")
    def load_vector(x, x_mine, residual, residual_mine, offset, inside):
        words = load(x, x_mine, offset, inside)
        h = hidden(words, load(residual, residual_mine, offset, inside)) if ADDS else widen(words)
        return keep_if(inside, h) if BACK else h

    return load_vector


def make_load_row(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    """``load_row(values, gains, x, x_mine, residual, residual_mine, weight, mine, room)``: h, and the first vectors' weight.

    All loads come before the first store and no branch parts them, so that all are in flight together. In a row of one warp a
    vector past the row's end is loaded from the row's first, for nothing, and where that is is decided once for x and weight:
    rmsnorm 8192 x 111 on an H200 takes 2.24 µs so, 2.50 with a decision for each, 2.54 with predicated loads.
    """
    load_vector, load_weight = make_load_vector(operation, config), make_load_weight(operation, config)
    _, offset_of, inside = make_ownership(config)
    HELD, EARLY, BACK = config.vectors_per_thread, config.early_weights, config.in_a_warp and not config.exact

    @cuda.jit(device=True, inline="always")
    def jump_of(i, mine, there):
        return int32(-mine) if BACK and not there else offset_of(i)

    @cuda.jit(device=True, inline="always")
    def load_row(values, gains, x, x_mine, residual, residual_mine, weight, mine, room):
        for i in range(HELD):
            there = inside(i, room)
            jump = jump_of(i, mine, there)
            put(values, int64(i), load_vector(x, x_mine, residual, residual_mine, jump, there))
            if i < EARLY:
                put(gains, int64(i), load_weight(weight, int64(mine), jump, there))

    return load_row


def words_of_weight(operation: NormOperation, config: NormConfig) -> tuple[int, Any]:
    """How many words hold a thread's share of the weight, and their type."""
    weight = FORMATS[operation.weight]
    return config.vectors_per_thread * words_in(weight, config.vector), word_type(weight, config.vector)


def make_load_weight(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    """``load_weight(weight, start, offset, inside) -> words``, as of `make_load_inside`."""
    return make_load_inside(FORMATS[operation.weight], config, config.weight_access)


# --- the sum of squares ---------------------------------------------------------------------------------------------------


def make_add_squares(config: NormConfig) -> Callable[..., Any]:
    """``add_squares(partial, values)``: ``partial[k]`` becomes the thread's part of its ``k``-th warp tile's sum."""
    HELD, PER_LANE, get = config.vectors_per_thread, config.vectors_per_lane, make_get(config.vector)

    @cuda.jit(device=True, inline="always")
    def add_squares(partial, values):
        for i in range(HELD):
            so_far = partial[i // PER_LANE] if i % PER_LANE else float32(0.0)
            partial[i // PER_LANE] = sum_squares(so_far, get(values, int64(i)))

    return add_squares


@cuda.jit(device=True, inline="always")
def rstd_of(total, share_bits, eps_bits):
    """1 / sqrt(total * share + eps), where the share is 1 / width."""
    return rsqrt(fma(total, float_from_bits(share_bits), float_from_bits(eps_bits)))


# --- store ----------------------------------------------------------------------------------------------------------------


def make_store_sum(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    """``store_sum(values, residual, residual_mine, room)``: the new residual is h rounded once."""
    storage = FORMATS[operation.storage]
    store, narrow = make_store(storage, config.vector, config.access), make_narrow(storage, config.vector)
    _, offset_of, inside = make_ownership(config)
    HELD, get = config.vectors_per_thread, make_get(config.vector)

    @cuda.jit(device=True, inline="always")
    def store_sum(values, residual, residual_mine, room):
        for i in range(HELD):
            if inside(i, room):
                store(residual, residual_mine, offset_of(i), narrow(get(values, int64(i))))

    return store_sum


def make_scale_row(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    """``scale_row(values, rstd, gains, weight, mine, out, out_mine, room, bias_bits)``: the output.

    What is not in ``gains`` is loaded when its product is due.
    """
    store = make_store(FORMATS[operation.storage], config.vector, config.access)
    load_weight, scaled = make_load_weight(operation, config), make_scaled(operation, config.vector)
    _, offset_of, inside = make_ownership(config)
    HELD, EARLY, get = config.vectors_per_thread, config.early_weights, make_get(config.vector)
    get_words = make_get(words_in(FORMATS[operation.weight], config.vector))

    @cuda.jit(device=True, inline="always")
    def scale_row(values, rstd, gains, weight, mine, out, out_mine, room, bias_bits):
        for i in range(HELD):
            offset = offset_of(i)
            if inside(i, room):
                gain = get_words(gains, int64(i)) if i < EARLY else load_weight(weight, int64(mine), offset, True)
                store(out, out_mine, offset, scaled(get(values, int64(i)), rstd, gain, bias_bits))

    return scale_row


# --- the weight in shared memory ------------------------------------------------------------------------------------------


def make_keep_weight(operation: NormOperation, config: NormConfig) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """``keep_weight(kept, thread, i, words)`` and ``kept_weight(kept, thread, i) -> words``: a thread's own ``i``-th vector.

    16 bytes of a vector, then the next thread's. One access each, and neighbouring lanes use neighbouring banks.
    """
    weight, THREADS, HELD = FORMATS[operation.weight], config.threads, config.vectors_per_thread
    WORDS, WORD = words_in(weight, config.vector), word_type(weight, config.vector)
    PART = min(4, WORDS)
    PARTS, get, get_part = WORDS // PART, make_get(WORDS), make_get(PART)
    store_part, load_part = make_shared_store(PART), make_shared_load(PART)

    @cuda.jit(device=True, inline="always")
    def place(i, p, thread):
        return int64(((p * HELD + i) * THREADS + thread) * PART)

    @cuda.jit(device=True, inline="always")
    def keep_weight(kept, thread, i, given):
        together = cuda.local.array(WORDS, WORD)
        put(together, int64(0), given)
        for p in range(PARTS):
            store_part(kept, place(i, p, thread), get_part(together, int64(p)))

    @cuda.jit(device=True, inline="always")
    def kept_weight(kept, thread, i):
        together = cuda.local.array(WORDS, WORD)
        for p in range(PARTS):
            put(together, int64(p), load_part(kept, place(i, p, thread)))
        return get(together, int64(0))

    return keep_weight, kept_weight


def make_keep_weights(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    """``keep_weights(kept, thread, weight, mine, room)``: a thread's weight, for this row and its block's next ones."""
    load_weight, (keep_weight, _) = make_load_weight(operation, config), make_keep_weight(operation, config)
    (_, offset_of, inside), HELD = make_ownership(config), config.vectors_per_thread

    @cuda.jit(device=True, inline="always")
    def keep_weights(kept, thread, weight, mine, room):
        for i in range(HELD):
            keep_weight(kept, thread, i, load_weight(weight, int64(mine), offset_of(i), inside(i, room)))

    return keep_weights


def make_scale_row_by_kept(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    """``scale_row(values, rstd, kept, thread, out, out_mine, room, bias_bits)``: the output, by the weight in shared memory."""
    store = make_store(FORMATS[operation.storage], config.vector, config.access)
    (_, kept_weight), scaled = make_keep_weight(operation, config), make_scaled(operation, config.vector)
    _, offset_of, inside = make_ownership(config)
    HELD, get = config.vectors_per_thread, make_get(config.vector)

    @cuda.jit(device=True, inline="always")
    def scale_row(values, rstd, kept, thread, out, out_mine, room, bias_bits):
        for i in range(HELD):
            offset = offset_of(i)
            if inside(i, room):
                gain = kept_weight(kept, thread, i)
                store(out, out_mine, offset, scaled(get(values, int64(i)), rstd, gain, bias_bits))

    return scale_row


# --- dependent launch and prefetch ----------------------------------------------------------------------------------------


def make_begin(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    """``begin(leads, weight, residual, row, residual_stride, rows, width)``: nothing that counts is read or written before it.

    With dependent launch the kernel is there before its predecessor has ended: it prefetches into L2 what a predecessor seldom
    writes (harmless if it does), then waits. ``leads``: whether this thread does so for its row.
    """
    ADDS, PDL, PREFETCH, FIRST = operation.adds_residual, config.pdl, config.prefetch_first, config.first_rows
    AT_START, BY_ROWS, (LEAST, MOST) = config.release == "start", config.release == "rows", config.held_back
    ITEMSIZE, WEIGHT_ITEMSIZE = FORMATS[operation.storage].itemsize, FORMATS[operation.weight].itemsize

    @cuda.jit(device=True, inline="always")
    def begin(leads, weight, residual, row, residual_stride, rows, width):
        if PDL:
            if AT_START or (BY_ROWS and (int32(rows) < LEAST or int32(rows) >= MOST)):  # known ahead of the wait
                release_dependents()
            if PREFETCH and leads and (FIRST == 0 or row < FIRST):
                if row == 0:
                    prefetch_l2(weight, int64(0), int64(WEIGHT_ITEMSIZE), width)
                if ADDS:
                    prefetch_l2(residual, row * residual_stride, int64(ITEMSIZE), width)
            wait_for_predecessor()

    return begin


def make_loaded(config: NormConfig) -> Callable[..., Any]:
    """``loaded()``: this row is read, so the next kernel may start, where the configuration says so."""
    RELEASES = config.pdl and config.release in ("loaded", "rows")  # once more for those that did at the start: no harm

    @cuda.jit(device=True, inline="always")
    def loaded():
        if RELEASES:
            release_dependents()

    return loaded


def make_look_ahead(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    """``look_ahead(leads, x, x_stride, residual, residual_stride, row, rows, first, count)``: prefetch a later row into L2.

    Memory works on it while this row waits for its sum. A cluster's blocks each ask for ``count`` elements from ``first`` on.
    """
    ADDS, ITEMSIZE = operation.adds_residual, FORMATS[operation.storage].itemsize
    AHEAD, FIRST = config.prefetch_ahead, config.first_rows

    @cuda.jit(device=True, inline="always")
    def look_ahead(leads, x, x_stride, residual, residual_stride, row, rows, first, count):
        if AHEAD > 0 and leads and row + AHEAD < rows and row + AHEAD >= FIRST:
            prefetch_l2(x, (row + AHEAD) * x_stride + first, int64(ITEMSIZE), count)
            if ADDS:
                prefetch_l2(residual, (row + AHEAD) * residual_stride + first, int64(ITEMSIZE), count)

    return look_ahead
