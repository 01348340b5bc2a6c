from difftest.mutants.field.rows import last_row_skipped as rmsnorm  # noqa: F401
from difftest.mutants.field.rows import last_row_skipped_in_place as fused_add_rmsnorm  # noqa: F401
