from difftest.mutants.field.shape import one_element_dropped as rmsnorm  # noqa: F401
