"""The kernels of the exhaustive run: one makes the inputs, one for each kind of operator judges the outputs.

A slice is rows x width pairs: a row has one pattern of the first operand, a column one of the second. Every array is 1-D; a word
of `inputs` and `outputs` is four 16-bit patterns. What is known of an operand comes in tables (tables.py), one entry a pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, float32, float64, int32, int64, uint8, uint16, uint64

from difftest.exhaustive import slots
from difftest.exhaustive.bits import bits_of, in_fp32
from numba_kernels.backend.arithmetic import absolute
from numba_kernels.backend.conversions import make_narrow, make_widen
from numba_kernels.formats import FORMATS
from reference.exact.bounds import FP32_LAST, FP32_MAX, FP32_TINY, product_error

THREADS = 256
PER_WORD = 4
ROWS = 16  # of a block
CELLS = slots.SLOTS * THREADS  # a tally of its own for each thread: none counts higher than the pairs that it judges
# Bits of an operand's info, above its pattern: its sign; if it is finite; whether 0 is among its outputs; whether its highest
# activation is the gate itself; whether a zero may have any sign; whether the activation's factor may be 0 in fp32. All but sign,
# finite and the zero's sign are the first operand's. The second's kind takes three bits.
SIGN, FINITE, VANISHES, EXACT, FREE, FADES, KIND = 16, 17, 18, 19, 20, 21, 24
NUMBERS = 5  # of a first operand
KINDS = 8
OPEN_CLASS = 3  # an expected class (0 finite, 1 Inf, -1 -Inf, 2 NaN) that says that none is expected
POISON = 0x7FE57FE57FE57FE5  # four NaNs, left where outputs were: a place that the next call skips is a NaN


def make_pairs(interleaved: bool) -> Callable[..., Any]:
    """``pairs(first_words, second_words, firsts, seconds, stride, row, column, width)``: the inputs of a slice.

    ``first_words``, ``second_words``: where a row's operands go, ``stride`` words from row to row; interleaved, both go to the
    first, by turns. Grid: (columns of words, rows).
    """

    @cuda.jit(device=True, inline="always")
    def pattern(patterns, index):
        return uint64(patterns[index]) & uint64(0xFFFF)

    if interleaved:

        def pairs(first_words, second_words, firsts, seconds, stride, row, column, width):
            word = int32(cuda.blockIdx.x) * int32(THREADS) + int32(cuda.threadIdx.x)
            if word * 2 < width:
                first = pattern(firsts, row + cuda.blockIdx.y)
                one = pattern(seconds, column + 2 * word)
                two = pattern(seconds, column + 2 * word + 1)
                first_words[cuda.blockIdx.y * stride + word] = first | one << uint64(16) | first << uint64(32) | two << uint64(48)

    else:

        def pairs(first_words, second_words, firsts, seconds, stride, row, column, width):
            word = int32(cuda.blockIdx.x) * int32(THREADS) + int32(cuda.threadIdx.x)
            if word * PER_WORD < width:
                place = cuda.blockIdx.y * stride + word
                first_words[place] = pattern(firsts, row + cuda.blockIdx.y) * uint64(0x0001000100010001)
                held = uint64(0)
                for k in range(PER_WORD):
                    held |= pattern(seconds, column + PER_WORD * word + k) << uint64(16 * k)
                second_words[place] = held

    return pairs


def make_gated_judge(storage: str, rounds: bool) -> Callable[..., Any]:
    """``judge(outputs, numbers, infos, factors, factor_infos, classes, row, column, width, counts, worst)``.

    Of the first operand ``numbers`` has NUMBERS float64 a pattern, magnitudes: the ends of what fp32 makes of the activation,
    then of the activation itself, then the gate; of the second ``factors`` has one. A product of one of each, rounded as
    `attainable.gated_ends` does (``rounds``: as its `product_roundings`), is the lowest and the highest attainable output, and
    the correctly rounded one.
    ``classes``: KINDS expected classes a first pattern. Grid: (column blocks, row blocks); ``counts`` has SLOTS a block,
    ``worst`` one. Where outputs were, poison is left.
    """
    narrow, once = make_narrow(FORMATS[storage], 1), _make_once(storage)
    settle, settle_class = _make_settle(storage), _make_settle_class(storage)
    VECTOR, SMALLEST, LAST, NOTHING = PER_WORD, float64(FP32_TINY), float64(FP32_LAST), float64(0.0)
    ONE_ROUNDING, LIMIT = float64(1.0 + product_error(1, False)), float64(0.999 * FP32_MAX)
    INFINITY = _infinity(storage)
    CERTAIN = int32(0 if rounds else 1 << FORMATS[storage].fraction_bits)  # the smallest normal number

    @cuda.jit(device=True, inline="always")
    def through_fp32(value):
        return int32(narrow((in_fp32(value),))[0])

    if rounds:

        @cuda.jit(device=True, inline="always")
        def ends(lowest, highest, exact):
            low = min(through_fp32(lowest), once(lowest))
            return low, max(through_fp32(highest), once(highest)), lowest < SMALLEST

    else:

        @cuda.jit(device=True, inline="always")
        def ends(lowest, highest, exact):
            low = max(lowest - LAST, NOTHING)
            if exact:  # of gate * up: rounded once, if fp32 holds it
                high = highest if float64(in_fp32(highest)) == highest else highest * ONE_ROUNDING + LAST
            else:
                high = highest + LAST
            return through_fp32(low), through_fp32(high), low < SMALLEST

    @cuda.jit(device=True, inline="always")
    def overflows(product, info, got, sign):
        """Whether (gate * up) * sigmoid(gate) explains an Inf or a NaN: gate * up is beyond fp32, and Inf * 0 is NaN."""
        is_nan = (got & int32(0x7FFF)) > INFINITY
        explained = (info >> FADES & 1) != 0 if is_nan else got >> 15 == sign
        return not rounds and product > LIMIT and explained

    def judge(outputs, numbers, infos, factors, factor_infos, classes, row, column, width, counts, worst):
        cells = cuda.shared.array(CELLS, uint8)
        keys = cuda.shared.array(THREADS, int64)
        thread = int32(cuda.threadIdx.x)
        word = int32(cuda.blockIdx.x) * int32(THREADS) + thread
        _clear(cells, thread)
        key = int64(0)
        if word * VECTOR < width:
            factor = cuda.local.array(VECTOR, float64)
            factor_info = cuda.local.array(VECTOR, int32)
            for k in range(VECTOR):
                factor[k] = factors[column + VECTOR * word + k]
                factor_info[k] = factor_infos[column + VECTOR * word + k]
            judged, explained = int32(0), int32(0)
            for step in range(ROWS):
                slice_row = int64(cuda.blockIdx.y) * ROWS + step
                place = slice_row * (width // VECTOR) + word
                held = uint64(outputs[place])
                outputs[place] = POISON
                pattern = row + slice_row
                info = infos[pattern]
                first = NUMBERS * pattern
                low_act, high_act = numbers[first], numbers[first + 1]
                low_right, high_right = numbers[first + 2], numbers[first + 3]
                for k in range(VECTOR):
                    got = int32(held >> uint64(16 * k)) & int32(0xFFFF)
                    sign = (info ^ factor_info[k]) >> SIGN & 1
                    magnitude = got & int32(0x7FFF)
                    if not (info & factor_info[k]) >> FINITE & 1:
                        expected = classes[pattern * KINDS + (factor_info[k] >> KIND)]
                        severity = settle_class(cells, thread, got, int32(expected))
                        key = max(key, _packed(severity, info, factor_info[k], got))
                    elif magnitude >= INFINITY and overflows(numbers[first + 4] * factor[k], info, got, sign):
                        _count(cells, thread, slots.OPEN)
                    else:
                        exact = (info >> EXACT & 1) != 0
                        low, high, vanishes = ends(low_act * factor[k], high_act * factor[k], exact)
                        vanishes = vanishes or (info >> VANISHES & 1) != 0
                        value = magnitude if got >> 15 == sign else -magnitude
                        judged += 1
                        explained += int32(low != high or vanishes)
                        outside = (value < low or value > high) and not (vanishes and value == 0)
                        free = (info | factor_info[k]) >> FREE & 1 != 0
                        if magnitude == 0 and got >> 15 != sign and not (free or outside):
                            _count(cells, thread, slots.WRONG_ZERO)
                            key = max(key, _packed(int32(slots.WRONG), info, factor_info[k], got))
                        # A single attainable value is the right one, unless fp32 rounds among its subnormals (tables.py).
                        if not (value == low and low == high and low >= CERTAIN):
                            right, other = once(low_right * factor[k]), once(high_right * factor[k])
                            if value != right or right != other or outside:
                                severity = settle(cells, thread, value, right, sign, outside, right != other)
                                key = max(key, _packed(severity, info, factor_info[k], got))
            cells[slots.JUDGED * THREADS + thread] = judged
            cells[slots.EXPLAINED * THREADS + thread] = explained
        keys[thread] = key
        _close(cells, keys, thread, counts, worst)

    return judge


def make_norm_judge(storage: str, rounds_sum: bool) -> Callable[..., Any]:
    """``judge(outputs, residuals, firsts, seconds, least, most, rights, small, large, last, free_below, free_from, row, column,
    width, counts, worst)``.

    A row of one element: h, the fp32 sum of the operands (``rounds_sum``: as stored), decides the output. For each pattern y of
    a magnitude ``least[y]`` and ``most[y]`` (fp32) are the least and the largest |h| that may give it, ``rights[y]`` the least
    whose correctly rounded output reaches y. Below ``small``, and from ``large`` on, where squares leave fp32, 0 may be given
    too; there ``last`` is right, and NaN is let pass. Below ``free_below`` and from ``free_from`` on a zero may have any sign.
    ``firsts``, ``seconds``: the patterns; ``residuals``: the rounded sums, to the bit. Grid and the rest as the judge of gated
    activations.
    """
    fmt = FORMATS[storage]
    narrow, widen = make_narrow(fmt, 1), _make_read_pattern(storage)
    settle, settle_class = _make_settle(storage), _make_settle_class(storage)
    VECTOR, INFINITY, FP32_INFINITY = PER_WORD, _infinity(storage), float32(float("inf"))

    @cuda.jit(device=True, inline="always")
    def right_of(hidden, rights):
        """The correctly rounded output's pattern, by halving."""
        low, high = int32(0), int32(INFINITY)
        while high - low > 1:
            middle = (low + high) >> 1
            if rights[middle] <= hidden:
                low = middle
            else:
                high = middle
        return low

    def judge(
        outputs, residuals, firsts, seconds, least, most, rights, small, large, last, free_below, free_from,
        row, column, width, counts, worst,
    ):  # fmt: skip
        cells = cuda.shared.array(CELLS, uint8)
        keys = cuda.shared.array(THREADS, int64)
        thread = int32(cuda.threadIdx.x)
        word = int32(cuda.blockIdx.x) * int32(THREADS) + thread
        _clear(cells, thread)
        key = int64(0)
        if word * VECTOR < width:
            judged = int32(0)
            for step in range(ROWS):
                slice_row = int64(cuda.blockIdx.y) * ROWS + step
                place = slice_row * (width // VECTOR) + word
                held, stored = uint64(outputs[place]), uint64(residuals[place])
                outputs[place] = POISON
                residuals[place] = POISON
                first = firsts[row + slice_row]
                for k in range(VECTOR):
                    second = seconds[column + VECTOR * word + k]
                    got = int32(held >> uint64(16 * k)) & int32(0xFFFF)
                    got_sum = int32(stored >> uint64(16 * k)) & int32(0xFFFF)
                    hidden = widen(first) + widen(second)
                    rounded = int32(narrow((hidden,))[0])
                    both_nan = (got_sum & int32(0x7FFF)) > INFINITY and (rounded & int32(0x7FFF)) > INFINITY
                    if got_sum != rounded and not both_nan:
                        _count(cells, thread, slots.WRONG_RESIDUAL)
                        key = max(key, _packed(int32(slots.WRONG), first, second, got))
                    if rounds_sum:
                        hidden = widen(rounded)
                    size = absolute(hidden)
                    if size >= large and size < FP32_INFINITY and (got & int32(0x7FFF)) > INFINITY:
                        _count(cells, thread, slots.OPEN)  # compensated sums make NaN of a square that is Inf
                    elif size < FP32_INFINITY:
                        sign = rounded >> 15
                        magnitude = got & int32(0x7FFF)
                        value = magnitude if got >> 15 == sign else -magnitude
                        place_of = max(value, int32(0))  # of the tables; a NaN's lies in them too, and is unattainable there
                        inside = value >= 0 and least[place_of] <= size <= most[place_of]
                        inside = inside or (value == 0 and (size < small or size >= large))
                        exact = value >= 0 and rights[place_of] <= size and size < rights[place_of + 1]
                        judged += 1
                        free = size < free_below or size >= free_from
                        if inside and magnitude == 0 and got >> 15 != sign and not free:
                            _count(cells, thread, slots.WRONG_ZERO)
                            key = max(key, _packed(int32(slots.WRONG), first, second, got))
                        if not (inside and exact):
                            right = int32(last) if size >= large else right_of(size, rights)
                            severity = settle(cells, thread, value, right, sign, not inside, False)
                            key = max(key, _packed(severity, first, second, got))
                    else:
                        severity = settle_class(cells, thread, got, int32(2))
                        key = max(key, _packed(severity, first, second, got))
            cells[slots.JUDGED * THREADS + thread] = judged
        keys[thread] = key
        _close(cells, keys, thread, counts, worst)

    return judge


# --- what both judges share -------------------------------------------------------------------------------------------


def _infinity(storage: str) -> int:
    """The pattern of +Inf."""
    fraction_bits = FORMATS[storage].fraction_bits
    return 0x7FFF >> fraction_bits << fraction_bits


def _make_once(storage: str) -> Callable[..., Any]:
    """``once(value) -> pattern``: a float64 magnitude rounded once to the storage dtype, to nearest even, by its bits.

    Below the smallest normal number the sum with a power of two whose last place is the dtype's own step rounds it.
    """
    fmt = FORMATS[storage]
    bias = (1 << (14 - fmt.fraction_bits)) - 1
    shift = 52 - fmt.fraction_bits
    SHIFT, HALF = int64(shift), int64((1 << (shift - 1)) - 1)
    OFFSET = int64((1023 - bias) << fmt.fraction_bits)
    MAGIC = float64(2.0 ** (1 - bias - fmt.fraction_bits + 52))
    MAGIC_BITS = int64((1 - bias - fmt.fraction_bits + 52 + 1023) << 52)
    NORMAL, INFINITY = float64(2.0 ** (1 - bias)), int64(_infinity(storage))

    @cuda.jit(device=True, inline="always")
    def once(value):
        if value < NORMAL:
            return int32(bits_of(value + MAGIC) - MAGIC_BITS)
        bits = bits_of(value)
        rounded = ((bits + HALF + (bits >> SHIFT & int64(1))) >> SHIFT) - OFFSET
        return int32(min(rounded, INFINITY))

    return once


def _make_read_pattern(storage: str) -> Callable[..., Any]:
    """``read(pattern) -> fp32``, exactly."""
    widen = make_widen(FORMATS[storage], 1)

    @cuda.jit(device=True, inline="always")
    def read(pattern):
        return widen((uint16(pattern),))[0]

    return read


@cuda.jit(device=True, inline="always")
def _packed(severity, first, second, got):
    """A worst pair as slots.py has it; ``first`` and ``second`` hold their patterns in the low 16 bits."""
    pair = (int64(first) & int64(0xFFFF)) << int64(16) | (int64(second) & int64(0xFFFF))
    packed = (int64(severity) << int64(slots.PAIR_BITS) | pair) << int64(slots.OUTPUT_BITS) | int64(got)
    return packed if severity > 0 else int64(0)


@cuda.jit(device=True, inline="always")
def _count(cells, thread, slot):
    """One more pair in a slot of this thread's own."""
    place = slot * THREADS + thread
    cells[place] = cells[place] + 1


def _make_settle(storage: str) -> Callable[..., Any]:
    """``settle(cells, thread, value, right, sign, wrong, undecided) -> severity`` of a bounded output that is not the right one,
    or is it and ``wrong``: fp32 may round what the right value rounds once to somewhere else.

    ``value``, ``right``: places on the integer line where the right sign is positive.
    """
    INFINITY = _infinity(storage)

    @cuda.jit(device=True, inline="always")
    def settle(cells, thread, value, right, sign, wrong, undecided):
        magnitude = abs(value)
        severity = int32(slots.CLASS_SEVERITY)
        if undecided:
            slot, severity = slots.UNDECIDED, int32(0)
        elif magnitude > INFINITY:
            slot = slots.NAN_FOR_NUMBER
        elif magnitude == INFINITY and right == INFINITY:
            slot = slots.WRONG_INF
        elif magnitude == INFINITY:
            slot = slots.INF_FOR_FINITE
        elif right == INFINITY:
            slot = slots.FINITE_FOR_INF
        else:
            rest = abs(value - right) - 1
            severity = min(rest + 1, int32(slots.CLASS_SEVERITY - 1))
            slot = slots.ABOVE if (value > right) == (sign == 0) else slots.BELOW
            while rest > 0:  # the bin: how many binary digits the distance less one has
                rest >>= 1
                slot += 1
        if undecided or value != right:
            _count(cells, thread, slot)
        if wrong:
            _count(cells, thread, slots.UNATTAINABLE)
            severity += int32(slots.WRONG)
        return severity

    return settle


def _make_settle_class(storage: str) -> Callable[..., Any]:
    """``settle_class(cells, thread, got, expected) -> severity`` of an output of which its class alone is judged."""
    INFINITY = _infinity(storage)

    @cuda.jit(device=True, inline="always")
    def settle_class(cells, thread, got, expected):
        magnitude = got & int32(0x7FFF)
        found = int32(0)
        if magnitude > INFINITY:
            found = int32(2)
        elif magnitude == INFINITY:
            found = int32(1) - 2 * (got >> 15)
        wrong = expected != OPEN_CLASS and found != expected
        _count(cells, thread, slots.OPEN if expected == OPEN_CLASS else slots.BY_CLASS)
        if wrong:
            _count(cells, thread, slots.WRONG_CLASS)
        return int32(slots.WRONG + slots.CLASS_SEVERITY) if wrong else int32(0)

    return settle_class


@cuda.jit(device=True, inline="always")
def _clear(cells, thread):
    """Empties this thread's cells."""
    for slot in range(slots.SLOTS):
        cells[slot * THREADS + thread] = 0


@cuda.jit(device=True, inline="always")
def _close(cells, keys, thread, counts, worst):
    """Adds the block's cells to its counts, and keeps the worst of its keys."""
    block = int64(cuda.blockIdx.y) * cuda.gridDim.x + cuda.blockIdx.x
    step = int32(THREADS // 2)
    cuda.syncthreads()
    while step > 0:
        if thread < step:
            keys[thread] = max(keys[thread], keys[thread + step])
        step >>= 1
        cuda.syncthreads()
    if thread < slots.SLOTS:
        total = int32(0)
        for k in range(THREADS):  # each lane begins at a bank of its own
            total += int32(cells[thread * THREADS + ((k + 4 * thread) & (THREADS - 1))])
        counts[block * slots.SLOTS + thread] += total
    if thread == 0:
        worst[block] = max(worst[block], keys[0])
