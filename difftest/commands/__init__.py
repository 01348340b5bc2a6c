"""The commands `difftest`, `replay`, `doctor` and `ledger`: options in, an exit status out."""
