from difftest.mutants.field.values import returns_zeros as rmsnorm  # noqa: F401
