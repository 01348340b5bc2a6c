from difftest.mutants.field.memory import weight_bytes_reinterpreted as rmsnorm  # noqa: F401
