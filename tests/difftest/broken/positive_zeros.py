from difftest.mutants.field.values import positive_zero_residual as fused_add_rmsnorm  # noqa: F401
