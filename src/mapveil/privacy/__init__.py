"""How much: guarantees, exact budgets, randomness, noise samplers and the ledger."""
