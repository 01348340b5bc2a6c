from difftest.mutants.field.memory import comes_back_wider as rmsnorm  # noqa: F401
