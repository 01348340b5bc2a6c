from difftest.mutants.field.values import squares_in_storage as rmsnorm  # noqa: F401
