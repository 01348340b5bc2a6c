"""How a case is run: on guarded memory, here or in worker processes, once or again and in parts."""
