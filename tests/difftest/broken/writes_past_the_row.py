from difftest.mutants.field.memory import one_element_past_the_row as fused_add_rmsnorm  # noqa: F401
