"""The client's half of sums by two operators: verifiable distributed aggregation functions of draft 18."""
