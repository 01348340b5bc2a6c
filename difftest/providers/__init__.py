"""Who can be tested: a name or FILE.py:FUNCTION as an implementation; this project's own kernels among them."""
