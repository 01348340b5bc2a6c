from difftest.mutants.field.memory import input_returned as rmsnorm  # noqa: F401
