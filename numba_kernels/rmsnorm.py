"""The RMSNorm kernels: ``h = x (+ residual); y = h / sqrt(mean(h²) + eps) * weight``.

Two forms with the same tree (see reduction.py) and so the same bits. *Held*: a row's fp32 values stay in registers between the
sum and the scaling, in those of several blocks (a cluster) where the row is too wide for one. *Streamed*: they stay in
``cuda.shared`` or, for a row that doesn't fit, are computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64

from . import intrinsics as nv
from .reduction import FULL_WARP, MAX_SEGMENTS, butterfly, make_warp_sums, sum_segments


@dataclass(frozen=True, slots=True)
class NormSpec:
    """All that a norm kernel is compiled for. Sizes in elements, ``access`` in bytes."""

    adds_residual: bool
    storage: str  # of x, residual and output: "bf16", "fp16", "fp32"
    weight: str  # of the weight
    rounds_sum: bool  # R1: normalise the stored sum
    rounds_norm: bool  # W1: round before the weight
    weight_bias: float | None  # added to the weight: 1.0 for Gemma; None: the launch says (one kernel for both)
    leaf: int
    chain: int
    access: int  # bytes of one access to x, residual and output
    weight_access: int
    row_in: str  # where the row waits for its sum: "registers", "shared", "memory"
    warps: int  # that share a row, in one block
    lanes: int  # that share a row; 32 unless rows are so short that several share a warp
    rows: int  # of one block; 1 where several warps share a row
    partials: int  # segments a warp holds (registers only)
    exact: bool  # every thread's leaves lie inside the row, and every block's rows inside the launch
    early_weight: bool = True  # load the weight before the sum is known
    pdl: bool = False
    cluster: int = 1  # blocks that share a row
    release_first: bool = False  # let the next kernel start at once, not when the row is loaded
    prefetch: bool = False  # call weight and residual into L2 while waiting for the predecessor
    ahead: int = 0  # call the row this many rows on into L2

    @property
    def threads(self) -> int:
        return self.warps * 32 if self.warps > 1 else self.rows * self.lanes


def make_norm_kernel(spec: NormSpec) -> Callable[..., Any]:
    """``kernel(x, residual, weight, out, x_stride, residual_stride, out_stride, rows, width, eps_bits, bias_bits)``.

    Buffers are addresses (GPU) or 1-D word arrays (CPU); strides, in elements, are between rows. ``residual`` is written with the
    new residual where the spec adds one, and ignored otherwise. ``out`` may be ``x``.
    """
    return _held(spec) if spec.row_in == "registers" else _streamed(spec)


def _memory(spec: NormSpec):
    """The spec's loads, stores and conversions: (load, load_weight, store, widen, narrow)."""
    storage, weight = nv.FORMATS[spec.storage], nv.FORMATS[spec.weight]
    return (
        nv.make_load(storage, spec.leaf, spec.access),
        nv.make_load(weight, spec.leaf, spec.weight_access),
        nv.make_store(storage, spec.leaf, spec.access),
        nv.make_widen(storage, spec.leaf),
        nv.make_narrow(storage, spec.leaf),
    )


def _make_scaling(spec: NormSpec):
    """``scaled(h, rstd, weight_words, bias_bits) -> words``: where W0 and W1 part, and Gemma's bias."""
    widen, narrow = (
        nv.make_widen(nv.FORMATS[spec.storage], spec.leaf),
        nv.make_narrow(nv.FORMATS[spec.storage], spec.leaf),
    )
    widen_weight = nv.make_widen(nv.FORMATS[spec.weight], spec.leaf)
    ROUNDS_NORM, BIAS = spec.rounds_norm, float32(spec.weight_bias or 0.0)

    if ROUNDS_NORM:

        @cuda.jit(device=True, inline="always")
        def normalised(h, rstd):
            return widen(narrow(nv.vector_mul(h, rstd)))

    else:

        @cuda.jit(device=True, inline="always")
        def normalised(h, rstd):
            return nv.vector_mul(h, rstd)

    if spec.weight_bias is None:

        @cuda.jit(device=True, inline="always")
        def scaled(h, rstd, words, bias_bits):
            gain = nv.vector_add(widen_weight(words), nv.float_from_bits(bias_bits))
            return narrow(nv.vector_mul(normalised(h, rstd), gain))

    elif spec.weight_bias == 0.0:

        @cuda.jit(device=True, inline="always")
        def scaled(h, rstd, words, bias_bits):
            return narrow(nv.vector_mul(normalised(h, rstd), widen_weight(words)))

    else:

        @cuda.jit(device=True, inline="always")
        def scaled(h, rstd, words, bias_bits):
            gain = nv.vector_add(widen_weight(words), BIAS)
            return narrow(nv.vector_mul(normalised(h, rstd), gain))

    return scaled


def _make_ownership(spec: NormSpec):
    """Where a thread's leaves lie in a row: segment by warp, chain by chain, one leaf a lane.

    ``first_of(warp, lane)`` is the first element of its first leaf, ``offset_of(i)`` how far its ``i``-th leaf lies from there (a
    constant, once loops are unrolled, so one address serves them all), and ``jump_of(i, mine, width)`` the same for loading:
    a leaf past the row's end gets the row's first, to be loaded and thrown away.
    """
    CHAIN, WARPS, EXACT, LEAF = spec.chain, spec.warps * spec.cluster, spec.exact, spec.leaf

    @cuda.jit(device=True, inline="always")
    def first_of(warp, lane):
        return int64(warp * (CHAIN * 32) + lane) * LEAF

    @cuda.jit(device=True, inline="always")
    def offset_of(i):
        return int64((i // CHAIN) * (WARPS * CHAIN) + i % CHAIN) * (32 * LEAF)

    @cuda.jit(device=True, inline="always")
    def jump_of(i, mine, width):
        return offset_of(i) if EXACT or mine + offset_of(i) < width else -mine

    return first_of, offset_of, jump_of


def _make_share_sums(spec: NormSpec):
    """``share_sums(segment_sums, partial, first, warp, lane, segments)``: a warp's sums, told to every block of the row.

    ``partial[k]`` belongs to segment ``first + k * (warps of the row) + warp``. The sums are there after the next barrier.
    """
    warp_sums, SHARE, EXACT = make_warp_sums(spec.partials), 32 // spec.partials, spec.exact
    CLUSTER, ROW_WARPS = spec.cluster, spec.warps * spec.cluster

    @cuda.jit(device=True, inline="always")
    def share_sums(segment_sums, partial, first, warp, lane, segments):
        total = warp_sums(partial, lane)
        s = first + (lane // SHARE) * ROW_WARPS + warp
        if CLUSTER > 1:
            if lane % SHARE < CLUSTER and (EXACT or s < segments):  # lane r of each group tells block r
                nv.store_in_block(segment_sums, int64(s), total, int32(lane % SHARE))
        elif lane % SHARE == 0 and (EXACT or s < segments):
            segment_sums[s] = total

    return share_sums


def _held(spec: NormSpec) -> Callable[..., Any]:
    load, load_weight, store, widen, narrow = _memory(spec)
    scaled, warp_sums, share_sums = _make_scaling(spec), make_warp_sums(spec.partials), _make_share_sums(spec)
    first_of, offset_of, jump_of = _make_ownership(spec)
    ADDS, ROUNDS_SUM, PDL, EXACT, EARLY = spec.adds_residual, spec.rounds_sum, spec.pdl, spec.exact, spec.early_weight
    LEAF, CHAIN, PARTIALS, WARPS, LANES, ROWS = spec.leaf, spec.chain, spec.partials, spec.warps, spec.lanes, spec.rows
    RELEASE_FIRST, PREFETCH, AHEAD = spec.release_first, spec.prefetch, spec.ahead
    SEGMENT, ALL, CLUSTER = 32 * CHAIN * LEAF, PARTIALS * WARPS * spec.cluster, spec.cluster
    HELD, SHARE, ZEROS = PARTIALS * CHAIN, 32 // PARTIALS, (np.float32(0.0),) * LEAF
    ITEMSIZE, WEIGHT_ITEMSIZE = nv.FORMATS[spec.storage].itemsize, nv.FORMATS[spec.weight].itemsize
    WORDS, WORD = nv.words_in(nv.FORMATS[spec.weight], LEAF), nv.word_type(nv.FORMATS[spec.weight], LEAF)
    VALUES, WEIGHT_WORDS = HELD * LEAF, HELD * WORDS
    get, get_words = nv.make_get(LEAF), nv.make_get(WORDS)

    def norm_kernel(x, residual, weight, out, x_stride, residual_stride, out_stride, rows, width, eps_bits, bias_bits):
        # Which row this thread works on, and which lane of which warp it is there.
        thread = int32(cuda.threadIdx.x)
        lane = thread % LANES
        if CLUSTER > 1:
            warp = int32(cuda.blockIdx.x % CLUSTER) * WARPS + thread // 32
            row = int64(cuda.blockIdx.x // CLUSTER)
            nv.cluster_arrive()
        elif WARPS > 1:
            warp = thread // 32
            row = int64(cuda.blockIdx.x)
        else:
            warp = int32(0)
            row = int64(cuda.blockIdx.x) * ROWS + thread // LANES
        here = EXACT or row < rows  # lanes without a row still take part in their warp's shuffles
        leads = lane == 0 and warp == 0 and here
        x_row, residual_row, out_row = row * x_stride, row * residual_stride, row * out_stride
        mine = first_of(warp, lane)
        x_mine, residual_mine, out_mine = x_row + mine, residual_row + mine, out_row + mine
        values = cuda.local.array(VALUES, float32)
        gains = cuda.local.array(WEIGHT_WORDS, WORD)
        partial = cuda.local.array(PARTIALS, float32)
        segment_sums = cuda.shared.array(MAX_SEGMENTS, float32)

        if PDL:
            # Call into L2 what a predecessor seldom writes (harmless if it does), then wait for it.
            if RELEASE_FIRST:
                nv.release_dependents()
            if PREFETCH and leads:
                nv.prefetch_run(weight, int64(0), int64(WEIGHT_ITEMSIZE), width)
                if ADDS:
                    nv.prefetch_run(residual, residual_row, int64(ITEMSIZE), width)
            nv.wait_for_predecessor()
        if AHEAD > 0 and leads and row + AHEAD < rows:
            # Memory works on a later row while this one waits for its sum.
            nv.prefetch_run(x, x_row + AHEAD * x_stride, int64(ITEMSIZE), width)
            if ADDS:
                nv.prefetch_run(residual, residual_row + AHEAD * residual_stride, int64(ITEMSIZE), width)

        # h = x + residual in fp32. All loads come before the first store and no branch parts them: all are in flight together.
        if here:
            for i in range(HELD):
                jump = jump_of(i, mine, width)
                h = widen(load(x, x_mine + jump))
                if ADDS:
                    h = nv.vector_add(h, widen(load(residual, residual_mine + jump)))
                nv.put(values, int64(i), h if EXACT else nv.keep_if(mine + offset_of(i) < width, h))
                if EARLY:
                    nv.put(gains, int64(i), load_weight(weight, mine + jump))
        else:
            for i in range(HELD):
                nv.put(values, int64(i), ZEROS)
        if PDL and not RELEASE_FIRST:
            nv.release_dependents()

        # The new residual is that sum rounded once; R1 goes on with what was stored.
        if ADDS:
            for i in range(HELD):
                if EXACT or (here and mine + offset_of(i) < width):
                    stored = narrow(get(values, int64(i)))
                    store(residual, residual_mine + offset_of(i), stored)
                    if ROUNDS_SUM:
                        nv.put(values, int64(i), widen(stored))

        # The sum of squares: leaves and chains by lane, segments by warp, the row by everybody.
        for k in range(PARTIALS):
            total = float32(0.0)
            for c in range(CHAIN):
                total = nv.sum_squares(total, get(values, int64(k * CHAIN + c)))
            partial[k] = total
        if WARPS > 1:
            segments = ALL if EXACT else int32((width + (SEGMENT - 1)) // SEGMENT)
            if CLUSTER > 1:
                nv.cluster_wait()  # every block has started, so its shared memory may be written
            share_sums(segment_sums, partial, int32(0), warp, lane, segments)
            if CLUSTER > 1:
                nv.cluster_arrive()
                nv.cluster_wait()
            else:
                cuda.syncthreads()
            total = sum_segments(segment_sums, segments, lane)
        elif PARTIALS > 1:
            total = warp_sums(partial, lane)
            total = cuda.shfl_sync(FULL_WARP, total, (lane % PARTIALS) * SHARE)
            total = butterfly(total if lane < PARTIALS else float32(0.0), 32)
        else:
            total = butterfly(partial[0], LANES)
        rstd = nv.rsqrt(nv.divide(total, float32(width)) + nv.float_from_bits(eps_bits))

        for i in range(HELD):
            if EXACT or (here and mine + offset_of(i) < width):
                gain = get_words(gains, int64(i)) if EARLY else load_weight(weight, mine + offset_of(i))
                store(out, out_mine + offset_of(i), scaled(get(values, int64(i)), rstd, gain, bias_bits))

    return norm_kernel


def _streamed(spec: NormSpec) -> Callable[..., Any]:
    load, load_weight, store, widen, narrow = _memory(spec)
    scaled, share_sums = _make_scaling(spec), _make_share_sums(spec)
    first_of, offset_of, jump_of = _make_ownership(spec)
    ADDS, ROUNDS_SUM, PDL, SHARED = spec.adds_residual, spec.rounds_sum, spec.pdl, spec.row_in == "shared"
    LEAF, CHAIN, PARTIALS, WARPS = spec.leaf, spec.chain, spec.partials, spec.warps
    RELEASE_FIRST, HELD, EXACT = spec.release_first, spec.partials * spec.chain, spec.exact
    VALUES, SEGMENT = HELD * LEAF, 32 * CHAIN * LEAF
    get = nv.make_get(LEAF)

    def norm_kernel(x, residual, weight, out, x_stride, residual_stride, out_stride, rows, width, eps_bits, bias_bits):
        thread = int32(cuda.threadIdx.x)
        lane = thread % 32
        warp = thread // 32
        row = int64(cuda.blockIdx.x)
        segments = int32((width + (SEGMENT - 1)) // SEGMENT)
        rounds = (segments + (PARTIALS * WARPS - 1)) // (PARTIALS * WARPS)
        mine = first_of(warp, lane)
        x_mine, residual_mine, out_mine = row * x_stride + mine, row * residual_stride + mine, row * out_stride + mine
        values = cuda.local.array(VALUES, float32)
        partial = cuda.local.array(PARTIALS, float32)
        segment_sums = cuda.shared.array(MAX_SEGMENTS, float32)
        if SHARED:
            # Element j of the leaf in slot s at [j * slots + s]: neighbouring lanes use neighbouring banks.
            row_values = cuda.shared.array(0, float32)
            slots = rounds * (HELD * WARPS * 32)
        if PDL:
            if RELEASE_FIRST:
                nv.release_dependents()
            nv.wait_for_predecessor()

        # First pass, a few leaves a thread at a time: the sum of squares. A row that is not kept leaves the old residual in
        # place for the second pass.
        for n in range(rounds):
            for i in range(HELD):
                jump = jump_of(n * HELD + i, mine, width)
                h = widen(load(x, x_mine + jump))
                if ADDS:
                    h = nv.vector_add(h, widen(load(residual, residual_mine + jump)))
                nv.put(values, int64(i), h if EXACT else nv.keep_if(mine + offset_of(n * HELD + i) < width, h))
            for i in range(HELD):
                offset = offset_of(n * HELD + i)
                if ADDS and SHARED and (EXACT or mine + offset < width):
                    store(residual, residual_mine + offset, narrow(get(values, int64(i))))
                if ROUNDS_SUM:
                    nv.put(values, int64(i), widen(narrow(get(values, int64(i)))))
                if SHARED:
                    slot = (n * HELD + i) * (WARPS * 32) + thread
                    for j in range(LEAF):
                        row_values[j * slots + slot] = values[i * LEAF + j]
            for k in range(PARTIALS):
                total = float32(0.0)
                for c in range(CHAIN):
                    total = nv.sum_squares(total, get(values, int64(k * CHAIN + c)))
                partial[k] = total
            share_sums(segment_sums, partial, n * (PARTIALS * WARPS), warp, lane, segments)
        if PDL and not RELEASE_FIRST:
            nv.release_dependents()
        cuda.syncthreads()
        total = sum_segments(segment_sums, segments, lane)
        rstd = nv.rsqrt(nv.divide(total, float32(width)) + nv.float_from_bits(eps_bits))

        # Second pass: each thread scales the leaves that it summed.
        for n in range(rounds):
            for i in range(HELD):
                if SHARED:
                    slot = (n * HELD + i) * (WARPS * 32) + thread
                    for j in range(LEAF):
                        values[i * LEAF + j] = row_values[j * slots + slot]
                else:
                    jump = jump_of(n * HELD + i, mine, width)
                    h = widen(load(x, x_mine + jump))
                    if ADDS:
                        h = nv.vector_add(h, widen(load(residual, residual_mine + jump)))
                    nv.put(values, int64(i), h)
            for i in range(HELD):
                offset = offset_of(n * HELD + i)
                if EXACT or mine + offset < width:
                    h = get(values, int64(i))
                    if ADDS and not SHARED:
                        store(residual, residual_mine + offset, narrow(h))
                    if ROUNDS_SUM and not SHARED:
                        h = widen(narrow(h))
                    store(out, out_mine + offset, scaled(h, rstd, load_weight(weight, mine + offset), bias_bits))

    return norm_kernel
