"""The operators' half of sums by two operators: checks of reports, aggregation, and noise, without I/O."""
