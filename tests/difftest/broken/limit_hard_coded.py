from difftest.mutants.field.gates import limit_hard_coded as swigluoai_and_mul  # noqa: F401
