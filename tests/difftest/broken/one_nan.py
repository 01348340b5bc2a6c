from difftest.mutants.field.values import one_nan as rmsnorm  # noqa: F401
