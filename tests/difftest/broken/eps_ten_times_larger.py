from difftest.mutants.field.eps import eps_ten_times_larger as rmsnorm  # noqa: F401
