from difftest.mutants.field.values import finite_for_inf as silu_and_mul  # noqa: F401
