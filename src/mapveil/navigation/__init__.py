"""Routes under private traffic."""
