from difftest.mutants.field.launch import order_changes_from_call_to_call as rmsnorm  # noqa: F401
