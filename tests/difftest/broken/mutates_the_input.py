from difftest.mutants.field.memory import input_changed as rmsnorm  # noqa: F401
