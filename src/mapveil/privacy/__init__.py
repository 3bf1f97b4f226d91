"""Guarantees, exact budgets, noise samplers and the ledger."""
