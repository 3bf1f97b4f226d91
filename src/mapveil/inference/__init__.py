"""Post-processing of noisy sums: shrinkage, least squares on trees, intervals."""
