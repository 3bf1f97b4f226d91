"""Sums by two operators as a service: what the leader does, what the helper answers, and what travels between them."""
