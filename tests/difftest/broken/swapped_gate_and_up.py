from difftest.mutants.field.gates import gate_and_up_exchanged as silu_and_mul  # noqa: F401
