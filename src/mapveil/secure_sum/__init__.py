"""The secure aggregation protocol, with no input or output of its own."""
