"""Usage: what calls of models used and cost, by whom, and budgets."""
