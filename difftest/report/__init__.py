"""What a run leaves for a reader: the terminal, HTML, JUnit, JSON and pictures; one table for all of them."""
