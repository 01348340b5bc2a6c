from difftest.mutants.field.memory import weight_changed as rmsnorm  # noqa: F401
