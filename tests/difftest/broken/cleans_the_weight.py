from difftest.mutants.field.weights import cleaned as rmsnorm  # noqa: F401
