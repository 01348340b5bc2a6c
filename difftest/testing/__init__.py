"""The tester in other people's suites: one assertion, and a pytest plugin."""
