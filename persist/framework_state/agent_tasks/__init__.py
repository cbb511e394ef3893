"""Tasks that agents do for others: their state, what was said and made, and whom to notify."""
