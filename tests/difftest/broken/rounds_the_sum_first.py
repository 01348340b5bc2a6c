from difftest.mutants.field.rounding import sum_rounded_first as fused_add_rmsnorm  # noqa: F401
