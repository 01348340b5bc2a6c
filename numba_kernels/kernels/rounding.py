"""Where a norm rounds: R0 or R1, what is squared and normalised; W0 or W1, what is multiplied by the weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, float32

from ..backend.arithmetic import vector_add, vector_mul
from ..backend.conversions import float_from_bits, make_narrow, make_rounded_product, make_rounded_sum, make_widen
from ..formats import FORMATS
from .config import NormOperation


def make_hidden(operation: NormOperation, vector: int) -> Callable[..., Any]:
    """``hidden(x_words, residual_words) -> fp32 vector``: h, which is squared and normalised.

    R0: the sum in fp32. R1: the sum rounded to storage, as it is stored.
    """
    storage = FORMATS[operation.storage]
    widen, rounded_sum = make_widen(storage, vector), make_rounded_sum(storage, vector)
    if operation.rounds_sum and storage.itemsize == 2:

        @cuda.jit(device=True, inline="always")
        def hidden(x_words, residual_words):
            return widen(rounded_sum(x_words, residual_words))

    else:

        @cuda.jit(device=True, inline="always")
        def hidden(x_words, residual_words):
            return vector_add(widen(x_words), widen(residual_words))

    return hidden


def make_normalised(operation: NormOperation, vector: int) -> Callable[..., Any]:
    """``normalised(h, rstd) -> fp32 vector``. W0: the product in fp32. W1: rounded to storage, before the weight."""
    storage = FORMATS[operation.storage]
    widen, narrow = make_widen(storage, vector), make_narrow(storage, vector)
    if operation.rounds_norm and storage.itemsize == 2:

        @cuda.jit(device=True, inline="always")
        def normalised(h, rstd):
            return widen(narrow(vector_mul(h, rstd)))

    else:

        @cuda.jit(device=True, inline="always")
        def normalised(h, rstd):
            return vector_mul(h, rstd)

    return normalised


def make_scaled(operation: NormOperation, vector: int) -> Callable[..., Any]:
    """``scaled(h, rstd, weight_words, bias_bits) -> words``: the output. The weight's bias (Gemma's 1) is added in fp32."""
    storage, weight = FORMATS[operation.storage], FORMATS[operation.weight]
    narrow, widen_weight = make_narrow(storage, vector), make_widen(weight, vector)
    normalised, rounded_product = make_normalised(operation, vector), make_rounded_product(storage, vector)
    BIAS = float32(operation.weight_bias or 0.0)

    if operation.weight_bias is None:

        @cuda.jit(device=True, inline="always")
        def scaled(h, rstd, words, bias_bits):
            gain = vector_add(widen_weight(words), float_from_bits(bias_bits))
            return narrow(vector_mul(normalised(h, rstd), gain))

    elif operation.weight_bias != 0.0:

        @cuda.jit(device=True, inline="always")
        def scaled(h, rstd, words, bias_bits):
            gain = vector_add(widen_weight(words), BIAS)
            return narrow(vector_mul(normalised(h, rstd), gain))

    elif operation.rounds_norm and storage.itemsize == 2 and weight == storage:

        @cuda.jit(device=True, inline="always")
        def scaled(h, rstd, words, bias_bits):
            return rounded_product(narrow(vector_mul(h, rstd)), words)  # the weight multiply in storage, two at a time

    else:

        @cuda.jit(device=True, inline="always")
        def scaled(h, rstd, words, bias_bits):
            return narrow(vector_mul(normalised(h, rstd), widen_weight(words)))

    return scaled
