"""What the judging kernels count, and how they write down the worst pair: numbers that kernels and host agree on."""

from __future__ import annotations

from difftest.report.bins import Bin
from difftest.verdict.ulp import MISMATCH_CLASSES

# Cells of a thread's tally. The first ones count pairs, each pair in one of the first three.
JUDGED, BY_CLASS, OPEN = 0, 1, 2  # bounded; compared by class alone; neither
EXPLAINED = 3  # bounded by more than one value
UNATTAINABLE, WRONG_CLASS, WRONG_ZERO, WRONG_RESIDUAL = 4, 5, 6, 7  # the ways to be wrong; a zero, by its sign
UNDECIDED = 8  # float64 can't tell the correctly rounded value
CLASSES = 9  # and on: bounded, but of another class than the correctly rounded value, in the order of MISMATCH_CLASSES
NAN_FOR_NUMBER, NUMBER_FOR_NAN, INF_FOR_FINITE, FINITE_FOR_INF, WRONG_INF = range(CLASSES, CLASSES + len(MISMATCH_CLASSES))
BELOW = WRONG_INF + 1  # and on: bin 1, 2, … of report/bins.py, the candidate the smaller value
BINS = 17  # the last holds distances of 2^15 + 1 to 2^16
ABOVE = BELOW + BINS
SLOTS = ABOVE + BINS

# The worst pair in one positive int64: severity, the operands' patterns, the output's pattern.
OUTPUT_BITS, PAIR_BITS, SEVERITY_BITS = 16, 32, 15
CLASS_SEVERITY = (1 << (SEVERITY_BITS - 1)) - 1  # of a class mismatch; a distance counts up to one less
WRONG = 1 << (SEVERITY_BITS - 1)  # added to the severity of what is wrong


def histogram(counts: list[int]) -> list[Bin]:
    """The bins of a tally, from 0 to the last that has a pair. What is of another class or undecided is in none."""
    elsewhere = sum(counts[UNDECIDED:SLOTS])
    found = [Bin(0, 0, 0, counts[JUDGED] - elsewhere)]
    for k in range(BINS):
        low, high = ((1 << k >> 1) + 1, 1 << k) if k else (1, 1)
        found.append(Bin(low, high, counts[BELOW + k], counts[ABOVE + k]))
    while len(found) > 1 and not found[-1].count:
        found.pop()
    return found


def unpack(key: int) -> tuple[bool, int, int, int]:
    """(wrong, first operand's pattern, second's, output's) of a worst pair."""
    severity, pair = key >> (PAIR_BITS + OUTPUT_BITS), key >> OUTPUT_BITS & 0xFFFFFFFF
    return bool(severity & WRONG), pair >> 16, pair & 0xFFFF, key & 0xFFFF
