"""GPU and host time of the operators beside their peers.

How a kernel of a microsecond and a half is timed: N calls over N prepared buffer sets are captured in one CUDA graph, and the
graph is launched between two events. The host's share, the clone of an input and the feeding of an in-place operator on its own
output stay outside the clock: before each launch every set gets its first values again, the L2 is written over and read
clean, and the stream is held back until the launch is queued. Providers take turns, so that a drift of the clocks meets them
all, and a copy of the same bytes takes its turns with them. After the clock stops, what the timed buffers hold is compared
with the provider's own contract.

Why not NVBench (cuda-bench 0.3.0), which times kernels well: `run_all_benchmarks` runs once in a process ("Benchmarks were
already executed") and one state after the other, and gives its numbers in a file at its end. So providers can't take turns,
and an interrupted run keeps nothing. Its isolated measurement brackets one launch with events, whose floor of some
microseconds hides these kernels; its batched one repeats one launchable without a flush, so that an in-place operator runs on
its own output and small inputs stay in the L2.
"""
