from difftest.mutants.field.weights import fp32_weight_cast_to_the_rows as rmsnorm  # noqa: F401
