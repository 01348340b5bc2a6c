"""How much does the tester catch? Kernels that are wrong in one way each, honest ones beside them, and who caught which."""
