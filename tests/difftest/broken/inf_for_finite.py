from difftest.mutants.field.values import inf_for_finite as rmsnorm  # noqa: F401
