from difftest.mutants.field.shape import mean_over_padded_width as rmsnorm  # noqa: F401
