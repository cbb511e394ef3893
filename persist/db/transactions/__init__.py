"""The unit of work, what verbs run through, and the transactions of both faces."""
