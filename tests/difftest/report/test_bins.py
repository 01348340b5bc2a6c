"""The histogram that a person reads: every distance in one bin, whose label holds it."""

from hypothesis import given
from hypothesis import strategies as st

from difftest.report.bins import bins, log_bar


@given(st.dictionaries(st.integers(-(2**33), 2**33), st.integers(1, 10**9), max_size=20))
def test_every_element_is_in_the_bin_that_holds_its_distance(histogram):
    found = bins(histogram)
    for b in found:
        assert b.below == sum(n for ulp, n in histogram.items() if ulp < 0 and b.low <= -ulp <= b.high)
        assert b.above == sum(n for ulp, n in histogram.items() if ulp >= 0 and b.low <= ulp <= b.high)
    assert sum(b.count for b in found) == sum(histogram.values())


def test_bins_double_and_meet():
    found = bins({0: 1, 100: 1})
    assert [b.label for b in found] == ["0", "±1", "±2", "±3 to 4", "±5 to 8", "±9 to 16", "±17 to 32", "±33 to 64", "±65 to 128"]


def test_one_element_is_visible_beside_a_million_and_none_is_not():
    assert log_bar(1, 10**6, 40)
    assert log_bar(0, 10**6, 40) == ""
    assert len(log_bar(10**6, 10**6, 40)) == 40
