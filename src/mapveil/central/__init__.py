"""Mechanisms of the trusted curator: epsilon-DP of what is released, one file each."""
