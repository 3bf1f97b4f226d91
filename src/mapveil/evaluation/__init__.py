"""Each paper's tables and figures, and comparisons, as runnable specifications."""
