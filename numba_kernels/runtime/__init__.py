"""From a caller's arrays to a kernel at work: arrays as they are, checks, remembered calls, launches, host memory, PyTorch."""
