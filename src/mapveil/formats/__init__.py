"""One reader and writer per file format."""
