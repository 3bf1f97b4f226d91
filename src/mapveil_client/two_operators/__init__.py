"""The client's half of sums by two operators: verifiable distributed aggregation functions (draft-irtf-cfrg-vdaf-18)."""
