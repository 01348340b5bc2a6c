from difftest.mutants.field.values import residual_clamped as fused_add_rmsnorm  # noqa: F401
