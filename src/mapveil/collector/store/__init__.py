"""The store: everything the collector remembers."""
