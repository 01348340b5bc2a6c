from difftest.mutants.field.eps import eps_in_half_precision as rmsnorm  # noqa: F401
