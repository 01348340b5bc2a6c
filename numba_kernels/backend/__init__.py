"""What depends on numba-cuda's code generation, one idea a module; the kernels are written in these words and numba.cuda's own.

One object serves both targets: made with ``numba.extending.intrinsic`` it works in CUDA kernels and under ``@njit``, on the
emulator; the module's triple tells which code to emit. A port to another compiler rewrites this package and nothing else.

A *vector* is a homogeneous tuple: ``n`` fp32 values, or the raw 32-bit words that hold them in storage (see conversions.py).
A *buffer* is an array of storage: a bare 64-bit address on the GPU, a 1-D array of words on the CPU (see memory.py).
"""
