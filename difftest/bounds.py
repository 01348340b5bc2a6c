"""When two implementations of one contract agree: fixed bounds on the pairwise ULP distance. The only place for them.

Imports `difftest.compare`.
"""

from __future__ import annotations

from collections.abc import Mapping

from difftest.compare import Comparison

# fp32 sums of a row in two orders move rstd, and with it the whole row, by a few units: measured up to 4 at width 4096.
FP32_MAX_ULP = 8
# Two fp32 evaluations in different orders land on two sides of a 16-bit rounding boundary in about 6 elements of a
# million at width 4096; a row that drops one element does so in 2.3 %. The rate allowed lies between the two.
OFF_BY_ONE_RATE = 1e-3
# In a case of a few thousand elements or fewer the rate means little: this many are always allowed.
OFF_BY_ONE_FLOOR = 3


def objections(dtype: str, outputs: Mapping[str, Comparison]) -> list[str]:
    """Why the outputs are not those of one contract, a sentence each; empty when they are.

    The new residual is bit-exact. A 16-bit output is within 1 ULP, and no more than max(3, 0.1 %) of its elements are
    off by one. An fp32 output is within 8 ULP. No element differs in class (NaN, Inf, finite).
    """
    found = []
    for name, comparison in outputs.items():
        for kind, count in comparison.classes.items():
            found.append(f"{name}: {count} of {comparison.elements} elements are {kind}")
        if name == "residual":
            if comparison.max_ulp:
                off = comparison.mismatches - sum(comparison.classes.values())
                of = f"{off} of {comparison.elements} elements"
                found.append(f"residual: {of} are not bit-exact, up to {comparison.max_ulp} ULP")
            continue
        limit = FP32_MAX_ULP if dtype == "fp32" else 1
        allowed = max(OFF_BY_ONE_FLOOR, OFF_BY_ONE_RATE * comparison.elements)
        if comparison.max_ulp > limit:
            found.append(f"{name}: up to {comparison.max_ulp} ULP apart, {limit} allowed")
        elif dtype != "fp32" and comparison.off_by_one > allowed:
            found.append(
                f"{name}: {comparison.off_by_one} of {comparison.elements} elements off by one, {allowed:.0f} allowed"
            )
    return found
