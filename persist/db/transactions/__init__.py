"""The unit of work, the frame of verbs, and the transactions of both faces."""
