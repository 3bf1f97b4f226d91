"""Benchmarks: ratios against a named peer or limit, measured in the same run."""
