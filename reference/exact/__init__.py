"""What is proved of an operator's results: the correctly rounded values, and those that fp32 arithmetic can round to."""
