"""The answer: density maps, metrics between them, smoothing, shrinkage, exports and pictures."""
