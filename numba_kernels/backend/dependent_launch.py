"""Programmatic dependent launch: a kernel that starts while its predecessor on the stream ends (PTX ISA, griddepcontrol)."""

from __future__ import annotations

from .codegen import make_statement

# Before the first read of what the predecessor may have written, and before the first write.
wait_for_predecessor = make_statement("griddepcontrol.wait;")
# The next kernel may start once every block has said so or ended.
release_dependents = make_statement("griddepcontrol.launch_dependents;")
