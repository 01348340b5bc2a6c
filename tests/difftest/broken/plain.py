from difftest.mutants.plain import fused_add_rmsnorm, rmsnorm, silu_and_mul, swigluoai_and_mul  # noqa: F401
