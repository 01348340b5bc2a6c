from difftest.mutants.field.memory import stride_ignored as rmsnorm  # noqa: F401
