"""What is right: operators, rounding contracts, their plain arithmetic, and other people's implementations."""
