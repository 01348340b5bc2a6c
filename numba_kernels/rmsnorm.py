"""The RMSNorm kernels: ``h = x (+ residual); y = h / sqrt(mean(h²) + eps) * weight``.

Two forms with the same tree (see reduction.py) and so the same bits. *Held*: a row's fp32 values stay in registers between the
sum and the scaling, of one block or, where a row is too wide for that, of several (a cluster). *Streamed*: they stay in
``cuda.shared`` or, for a row that doesn't fit, are computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numba import cuda, float32, int32, int64, uint32, uint64

from . import intrinsics as nv
from .reduction import MAX_SEGMENTS, butterfly, make_sum_segments, make_warp_sums


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
    rows: int  # that a block works on side by side; 1 where several warps share a row
    partials: int  # segments a warp holds (registers only)
    exact: bool  # every thread's leaves lie inside the row, and every block's rows inside the launch
    early: int = 4  # how many of a thread's leaves have their weight loaded before the sum is known
    pdl: bool = False
    cluster: int = 1  # blocks that share a row; if several, as many clusters as the GPU holds draw one row after another
    blocks: int = 1  # that fit a multiprocessor side by side, at least: bounds a thread's registers
    release: str = "end"  # when the next kernel may start: at the "start", when the row is "loaded", or at the "end"
    prefetch: bool = False  # call weight and residual of the first rows into L2 while waiting for the predecessor
    ahead: int = 0  # call the row this many rows on into L2
    at_once: int = 0  # the first rows, whose blocks start together: prefetched (0: all are), and not called ahead

    @property
    def threads(self) -> int:
        return self.warps * 32 if self.warps > 1 else self.rows * self.lanes


def make_norm_kernel(spec: NormSpec) -> Callable[..., Any]:
    """``kernel(x, residual, weight, out, x_stride, residual_stride, out_stride, rows, width, share, eps, bias, counter)``.

    Buffers are addresses (GPU) or 1-D word arrays (CPU); strides, in elements, are between rows. ``residual`` is written with the
    new residual where the spec adds one, and ignored otherwise. ``out`` may be ``x``. ``share`` (1 / width), ``eps`` and ``bias``
    (the weight's) are the bits of fp32 values. ``counter`` is the number of the counter from which rows are drawn; no two
    launches that run at the same time may have the same.
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


def _make_hidden(spec: NormSpec):
    """``hidden(x_words, residual_words) -> fp32 vector``: what is squared and normalised, where R0 and R1 part."""
    storage = nv.FORMATS[spec.storage]
    widen, rounded_sum = nv.make_widen(storage, spec.leaf), nv.make_rounded_sum(storage, spec.leaf)
    if spec.rounds_sum and storage.itemsize == 2:

        @cuda.jit(device=True, inline="always")
        def hidden(x_words, residual_words):
            return widen(rounded_sum(x_words, residual_words))

    else:

        @cuda.jit(device=True, inline="always")
        def hidden(x_words, residual_words):
            return nv.vector_add(widen(x_words), widen(residual_words))

    return hidden


def _make_scaling(spec: NormSpec):
    """``scaled(h, rstd, weight_words, bias_bits) -> words``: where W0 and W1 part, and Gemma's bias."""
    storage, weight = nv.FORMATS[spec.storage], nv.FORMATS[spec.weight]
    widen, narrow = nv.make_widen(storage, spec.leaf), nv.make_narrow(storage, spec.leaf)
    widen_weight, rounded_product = nv.make_widen(weight, spec.leaf), nv.make_rounded_product(storage, spec.leaf)
    ROUNDS_NORM, BIAS = spec.rounds_norm and storage.itemsize == 2, float32(spec.weight_bias or 0.0)

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

    elif spec.weight_bias != 0.0:

        @cuda.jit(device=True, inline="always")
        def scaled(h, rstd, words, bias_bits):
            gain = nv.vector_add(widen_weight(words), BIAS)
            return narrow(nv.vector_mul(normalised(h, rstd), gain))

    elif ROUNDS_NORM and weight == storage:

        @cuda.jit(device=True, inline="always")
        def scaled(h, rstd, words, bias_bits):
            return rounded_product(narrow(nv.vector_mul(h, rstd)), words)

    else:

        @cuda.jit(device=True, inline="always")
        def scaled(h, rstd, words, bias_bits):
            return narrow(nv.vector_mul(normalised(h, rstd), widen_weight(words)))

    return scaled


def _log2(power: int) -> int:
    """``n >> _log2(power)`` is ``n // power`` in one instruction, where Python's division of a signed number takes six."""
    return power.bit_length() - 1


def _make_ownership(spec: NormSpec):
    """Where a thread's leaves lie in a row: segment by warp, chain by chain, one leaf a lane. All in 32 bits.

    ``first_of(warp, lane)`` is the first element of its first leaf, ``offset_of(i)`` how far its ``i``-th leaf lies from there: a
    constant, once loops are unrolled, so one address serves them all. ``inside(i, room)`` tells whether that leaf lies in the
    row, ``room`` elements of which lie from the first leaf on. ``jump_of(i, mine, room)`` is the offset for loading: a leaf
    past the row's end gets the row's first, to be loaded and thrown away.
    """
    CHAIN, WARPS, EXACT, LEAF = spec.chain, spec.warps * spec.cluster, spec.exact, spec.leaf

    @cuda.jit(device=True, inline="always")
    def first_of(warp, lane):
        return int32((warp * (CHAIN * 32) + lane) * LEAF)

    @cuda.jit(device=True, inline="always")
    def offset_of(i):
        return int32(((i // CHAIN) * (WARPS * CHAIN) + i % CHAIN) * (32 * LEAF))

    @cuda.jit(device=True, inline="always")
    def inside(i, room):
        return EXACT or offset_of(i) < room

    @cuda.jit(device=True, inline="always")
    def jump_of(i, mine, room):
        return offset_of(i) if inside(i, room) else int32(-mine)

    return first_of, offset_of, inside, jump_of


def _make_share_sums(spec: NormSpec):
    """``share_sums(segment_sums, sums, partial, first, warp, lane, segments)``: a warp's sums, told to the whole block.

    They go to ``segment_sums`` from place ``sums`` on. ``partial[k]`` belongs to segment ``first + k * WARPS + warp``. The sums
    are there after the next barrier.
    """
    warp_sums, SHARE, EXACT, WARPS = make_warp_sums(spec.partials), 32 // spec.partials, spec.exact, spec.warps
    SHIFT = _log2(SHARE)

    @cuda.jit(device=True, inline="always")
    def share_sums(segment_sums, sums, partial, first, warp, lane, segments):
        total = warp_sums(partial, lane)
        s = int32(first + (lane >> SHIFT) * WARPS + warp)
        if lane & (SHARE - 1) == 0 and (EXACT or s < segments):
            segment_sums[uint32(sums + s)] = total

    return share_sums


def _make_send_sums(spec: NormSpec):
    """``send_sums(segment_sums, sums, mailboxes, which, partial, warp, lane)``: to every block of the cluster.

    As above, but ``warp`` counts through the cluster, and mailbox ``which`` of each block counts what arrives there. Warps that
    lie past the row's end send their zeros too: a phase that ended without one of them might be over twice before it looked.
    """
    warp_sums, SHARE, CLUSTER = make_warp_sums(spec.partials), 32 // spec.partials, spec.cluster
    SHIFT, ROW_WARPS = _log2(SHARE), spec.warps * spec.cluster
    assert CLUSTER <= SHARE, "each block must have a lane that tells it"

    @cuda.jit(device=True, inline="always")
    def send_sums(segment_sums, sums, mailboxes, which, partial, warp, lane):
        total = warp_sums(partial, lane)
        s = int32((lane >> SHIFT) * ROW_WARPS + warp)
        rank = int32(lane & (SHARE - 1))  # lane r of each group of lanes that have this sum tells block r
        if rank < CLUSTER:
            nv.send_to_block(segment_sums, int64(sums + s), total, rank, mailboxes, int64(which))

    return send_sums


def _make_kept_weight(spec: NormSpec):
    """``keep_weight(kept, thread, i, words)`` and ``kept_weight(kept, thread, i) -> words``: a thread's own ``i``-th leaf.

    In shared memory: 16 bytes of a leaf, then the next thread's. One access each, and neighbouring lanes use neighbouring banks.
    """
    weight, threads, leaves = nv.FORMATS[spec.weight], spec.threads, spec.partials * spec.chain
    words, kind = nv.words_in(weight, spec.leaf), nv.word_type(weight, spec.leaf)
    part = min(4, words)
    parts, get, get_part = words // part, nv.make_get(words), nv.make_get(part)
    store_part, load_part = nv.make_store_part(part), nv.make_load_part(part)

    @cuda.jit(device=True, inline="always")
    def place(i, p, thread):
        return int64(((p * leaves + i) * threads + thread) * part)

    @cuda.jit(device=True, inline="always")
    def keep_weight(kept, thread, i, given):
        together = cuda.local.array(words, kind)
        nv.put(together, int64(0), given)
        for p in range(parts):
            store_part(kept, place(i, p, thread), get_part(together, int64(p)))

    @cuda.jit(device=True, inline="always")
    def kept_weight(kept, thread, i):
        together = cuda.local.array(words, kind)
        for p in range(parts):
            nv.put(together, int64(p), load_part(kept, place(i, p, thread)))
        return get(together, int64(0))

    return keep_weight, kept_weight


def _held(spec: NormSpec) -> Callable[..., Any]:
    load, load_weight, store, widen, narrow = _memory(spec)
    keep_weight, kept_weight = _make_kept_weight(spec)
    hidden, scaled, warp_sums = _make_hidden(spec), _make_scaling(spec), make_warp_sums(spec.partials)
    share_sums, send_sums = _make_share_sums(spec), _make_send_sums(spec)
    first_of, offset_of, inside, jump_of = _make_ownership(spec)
    ADDS, PDL, EXACT, EARLY = spec.adds_residual, spec.pdl, spec.exact, spec.early
    LEAF, CHAIN, PARTIALS, WARPS, LANES, ROWS = spec.leaf, spec.chain, spec.partials, spec.warps, spec.lanes, spec.rows
    AT_START, AT_LOADED, PREFETCH, AHEAD = spec.release == "start", spec.release == "loaded", spec.prefetch, spec.ahead
    SEGMENT, ALL, CLUSTER, HELD = 32 * CHAIN * LEAF, PARTIALS * WARPS * spec.cluster, spec.cluster, PARTIALS * CHAIN
    LANE_BITS, CLUSTER_BITS, SEGMENT_BITS = _log2(LANES), _log2(CLUSTER), _log2(SEGMENT)
    ITEMSIZE, WEIGHT_ITEMSIZE = nv.FORMATS[spec.storage].itemsize, nv.FORMATS[spec.weight].itemsize
    WORDS, WORD = nv.words_in(nv.FORMATS[spec.weight], LEAF), nv.word_type(nv.FORMATS[spec.weight], LEAF)
    VALUES, WEIGHT_WORDS, SHARE = HELD * LEAF, HELD * WORDS, 32 // PARTIALS
    AT_ONCE, PLACES = spec.at_once, MAX_SEGMENTS if CLUSTER == 1 else 2 * MAX_SEGMENTS
    get, get_words, sum_segments = nv.make_get(LEAF), nv.make_get(WORDS), make_sum_segments(ALL)

    def norm_kernel(
        x, residual, weight, out, x_stride, residual_stride, out_stride, rows, width, share_bits, eps_bits, bias_bits, counter
    ):
        # Which row this thread works on, and which lane of which warp it is there.
        thread, block = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x)
        lane, rank = int32(thread & (LANES - 1)), int32(block & (CLUSTER - 1))
        if WARPS > 1:
            warp = int32(rank * WARPS + (thread >> 5))
            row = int64(block >> CLUSTER_BITS)
        else:
            warp = int32(0)
            row = int64(block) * ROWS + (thread >> LANE_BITS)
        if CLUSTER > 1:
            mailboxes = cuda.shared.array(4, uint64)
            if thread < 4:
                nv.make_mailbox(mailboxes, int64(thread))
            nv.cluster_arrive()
        mine = first_of(warp, lane)
        room = int32(width - mine)
        if ROWS > 1 and not EXACT and row >= rows:
            # Lanes without a row take part in their warp's shuffles, with nothing of the last one.
            row = rows - 1
            room = int32(0)
        leads = lane == 0 and warp == 0 and room > 0
        values = cuda.local.array(VALUES, float32)
        gains = cuda.local.array(WEIGHT_WORDS, WORD)
        partial = cuda.local.array(PARTIALS, float32)
        segment_sums = cuda.shared.array(PLACES, float32)
        if AHEAD > 0:
            # A cluster's blocks call a later row into L2 in as many pieces, each a multiple of 16 elements.
            calls = leads if CLUSTER == 1 else thread == 0
            piece = width if CLUSTER == 1 else (width >> CLUSTER_BITS) & int64(-16)
            piece_start = int64(rank) * piece

        if PDL:
            # Call into L2 what a predecessor seldom writes (harmless if it does), then wait for it.
            if AT_START:
                nv.release_dependents()
            if PREFETCH and leads and (AT_ONCE == 0 or row < AT_ONCE):
                if row == 0:
                    nv.prefetch_run(weight, int64(0), int64(WEIGHT_ITEMSIZE), width)
                if ADDS:
                    nv.prefetch_run(residual, row * residual_stride, int64(ITEMSIZE), width)
            nv.wait_for_predecessor()
        if CLUSTER > 1:
            clusters = int64(cuda.gridDim.x >> CLUSTER_BITS)
            next_draws = cuda.shared.array(2, int32)
            kept = cuda.shared.array(0, WORD, alignment=16)
        turn, going = int32(0), True
        while going:
            # Sums and draws of one row are read while those of the next are written: two places, in turn.
            which = int32(turn & 1)
            sums = which * MAX_SEGMENTS
            x_mine, residual_mine, out_mine = row * x_stride + mine, row * residual_stride + mine, row * out_stride + mine
            if AHEAD > 0 and calls and row + AHEAD < rows and row + AHEAD >= AT_ONCE:
                # Memory works on a later row while this one waits for its sum.
                nv.prefetch_run(x, (row + AHEAD) * x_stride + piece_start, int64(ITEMSIZE), piece)
                if ADDS:
                    nv.prefetch_run(residual, (row + AHEAD) * residual_stride + piece_start, int64(ITEMSIZE), piece)

            # h = x + residual in fp32. All loads come before the first store and no branch parts them, so all are in flight.
            for i in range(HELD):
                jump = jump_of(i, mine, room)
                words = load(x, x_mine, jump)
                h = hidden(words, load(residual, residual_mine, jump)) if ADDS else widen(words)
                nv.put(values, int64(i), h if EXACT else nv.keep_if(inside(i, room), h))
                if i < EARLY:
                    nv.put(gains, int64(i), load_weight(weight, int64(mine), jump))
            if PDL and AT_LOADED:
                nv.release_dependents()

            # The new residual is h rounded once.
            if ADDS:
                for i in range(HELD):
                    if inside(i, room):
                        store(residual, residual_mine, offset_of(i), narrow(get(values, int64(i))))

            # The sum of squares: leaves and chains by thread, segments by warp, the row by everybody.
            for i in range(HELD):
                so_far = partial[i // CHAIN] if i % CHAIN else float32(0.0)
                partial[i // CHAIN] = nv.sum_squares(so_far, get(values, int64(i)))
            if WARPS > 1:
                segments = int32(ALL) if EXACT else int32((width + (SEGMENT - 1)) >> SEGMENT_BITS)
                if CLUSTER > 1:
                    if turn == 0:
                        nv.cluster_wait()  # every block has started, so its shared memory may be written
                    if thread == 0:
                        nv.expect_words(mailboxes, int64(which), int32(ALL))
                        nv.expect_words(mailboxes, int64(2 + which), int32(1))
                    send_sums(segment_sums, sums, mailboxes, which, partial, warp, lane)
                    if turn == 0:
                        for i in range(HELD):
                            keep_weight(kept, thread, i, load_weight(weight, int64(mine), jump_of(i, mine, room)))
                    nv.wait_for_words(mailboxes, int64(which), int32((turn >> 1) & 1))
                    if thread == 0 and rank == 0:
                        # A row is drawn no sooner than its turn is near, so that rows start in their order in memory.
                        drawn = nv.draw(int32(counter), int32(rows))
                        for other in range(CLUSTER):
                            nv.send_to_block(next_draws, int64(which), drawn, int32(other), mailboxes, int64(2 + which))
                else:
                    share_sums(segment_sums, sums, partial, int32(0), warp, lane, segments)
                    cuda.syncthreads()
                total = sum_segments(segment_sums, sums, segments, lane)
            else:
                total = butterfly(warp_sums(partial, lane), 16, SHARE) if PARTIALS > 1 else butterfly(partial[0], LANES // 2, 1)
            rstd = nv.rsqrt(nv.fma(total, nv.float_from_bits(share_bits), nv.float_from_bits(eps_bits)))

            for i in range(HELD):
                offset = offset_of(i)
                if inside(i, room):
                    if CLUSTER > 1:
                        gain = kept_weight(kept, thread, i)
                    else:
                        gain = get_words(gains, int64(i)) if i < EARLY else load_weight(weight, int64(mine), offset)
                    store(out, out_mine, offset, scaled(get(values, int64(i)), rstd, gain, bias_bits))

            if CLUSTER > 1:
                nv.wait_for_words(mailboxes, int64(2 + which), int32((turn >> 1) & 1))
                row = clusters + next_draws[which]
                turn += 1
            going = CLUSTER > 1 and row < rows

    return norm_kernel


def _streamed(spec: NormSpec) -> Callable[..., Any]:
    load, load_weight, store, widen, narrow = _memory(spec)
    hidden, scaled, share_sums = _make_hidden(spec), _make_scaling(spec), _make_share_sums(spec)
    first_of, offset_of, inside, jump_of = _make_ownership(spec)
    ADDS, PDL, SHARED = spec.adds_residual, spec.pdl, spec.row_in == "shared"
    LEAF, CHAIN, PARTIALS, WARPS = spec.leaf, spec.chain, spec.partials, spec.warps
    AT_START, AT_LOADED, HELD, EXACT = spec.release == "start", spec.release == "loaded", spec.partials * spec.chain, spec.exact
    VALUES, SEGMENT_BITS = HELD * LEAF, _log2(32 * CHAIN * LEAF)
    get, sum_segments = nv.make_get(LEAF), make_sum_segments(MAX_SEGMENTS)

    def norm_kernel(
        x, residual, weight, out, x_stride, residual_stride, out_stride, rows, width, share_bits, eps_bits, bias_bits, counter
    ):
        thread = int32(cuda.threadIdx.x)
        lane, warp = int32(thread & 31), int32(thread >> 5)
        row = int64(cuda.blockIdx.x)
        segments = int32((width + ((1 << SEGMENT_BITS) - 1)) >> SEGMENT_BITS)
        rounds = int32((segments + (PARTIALS * WARPS - 1)) // (PARTIALS * WARPS))
        mine = first_of(warp, lane)
        room = int32(width - mine)
        x_mine, residual_mine, out_mine = row * x_stride + mine, row * residual_stride + mine, row * out_stride + mine
        weight_mine = int64(mine)
        values = cuda.local.array(VALUES, float32)
        partial = cuda.local.array(PARTIALS, float32)
        segment_sums = cuda.shared.array(MAX_SEGMENTS, float32)
        if SHARED:
            # Element j of the leaf in slot s at [j * slots + s]: neighbouring lanes use neighbouring banks.
            row_values = cuda.shared.array(0, float32)
            slots = rounds * (HELD * WARPS * 32)
        if PDL:
            if AT_START:
                nv.release_dependents()
            nv.wait_for_predecessor()

        # First pass, a few leaves a thread at a time: the sum of squares. A row that is not kept leaves the old residual in
        # place for the second pass.
        for n in range(rounds):
            for i in range(HELD):
                jump = jump_of(n * HELD + i, mine, room)
                words = load(x, x_mine, jump)
                h = hidden(words, load(residual, residual_mine, jump)) if ADDS else widen(words)
                nv.put(values, int64(i), h if EXACT else nv.keep_if(inside(n * HELD + i, room), h))
            for i in range(HELD):
                if ADDS and SHARED and inside(n * HELD + i, room):
                    store(residual, residual_mine, offset_of(n * HELD + i), narrow(get(values, int64(i))))
                if SHARED:
                    slot = (n * HELD + i) * (WARPS * 32) + thread
                    for j in range(LEAF):
                        row_values[j * slots + slot] = values[i * LEAF + j]
            for k in range(PARTIALS):
                total = float32(0.0)
                for c in range(CHAIN):
                    total = nv.sum_squares(total, get(values, int64(k * CHAIN + c)))
                partial[k] = total
            share_sums(segment_sums, int32(0), partial, int32(n * (PARTIALS * WARPS)), warp, lane, segments)
        if PDL and AT_LOADED:
            nv.release_dependents()
        cuda.syncthreads()
        total = sum_segments(segment_sums, int32(0), segments, lane)
        rstd = nv.rsqrt(nv.fma(total, nv.float_from_bits(share_bits), nv.float_from_bits(eps_bits)))

        # Second pass: each thread scales the leaves that it summed.
        for n in range(rounds):
            for i in range(HELD):
                if SHARED:
                    slot = (n * HELD + i) * (WARPS * 32) + thread
                    for j in range(LEAF):
                        values[i * LEAF + j] = row_values[j * slots + slot]
                else:
                    jump = jump_of(n * HELD + i, mine, room)
                    words = load(x, x_mine, jump)
                    nv.put(values, int64(i), hidden(words, load(residual, residual_mine, jump)) if ADDS else widen(words))
            for i in range(HELD):
                offset = offset_of(n * HELD + i)
                if inside(n * HELD + i, room):
                    h = get(values, int64(i))
                    if ADDS and not SHARED:
                        store(residual, residual_mine, offset, narrow(h))
                    store(out, out_mine, offset, scaled(h, rstd, load_weight(weight, weight_mine, offset), bias_bits))

    return norm_kernel
