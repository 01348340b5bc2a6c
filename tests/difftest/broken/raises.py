from difftest.mutants.field.shape import multiple_of_eight_or_raises as rmsnorm  # noqa: F401
