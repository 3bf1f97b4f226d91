"""The client half of the secure aggregation protocol, without input or output."""
