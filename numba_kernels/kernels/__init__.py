"""The kernels. textbook.py has each one as plainly as it can be written; the others say the same, fast."""
