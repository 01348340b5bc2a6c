from difftest.mutants.field.values import nan_deleted as rmsnorm  # noqa: F401
