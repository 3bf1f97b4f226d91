"""Adversaries and audits: what could still be learned."""
