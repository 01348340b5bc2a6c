from difftest.mutants.field.gates import alpha_hard_coded as swigluoai_and_mul  # noqa: F401
