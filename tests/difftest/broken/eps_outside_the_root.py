from difftest.mutants.field.eps import eps_outside_the_root as rmsnorm  # noqa: F401
