from difftest.mutants.field.memory import residual_not_written_back as fused_add_rmsnorm  # noqa: F401
