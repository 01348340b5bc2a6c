from difftest.mutants.field.eps import eps_from_the_dtype as rmsnorm  # noqa: F401
