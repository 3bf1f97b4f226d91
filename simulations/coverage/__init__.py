"""Coverage by sums against a pilot alone, in a simulated city and on real measurements."""
