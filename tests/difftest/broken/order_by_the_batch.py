from difftest.mutants.field.launch import fused_order_by_the_number_of_rows as fused_add_rmsnorm  # noqa: F401
from difftest.mutants.field.launch import order_by_the_number_of_rows as rmsnorm  # noqa: F401
