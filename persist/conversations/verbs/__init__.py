"""The verbs of tx.conversations, one module per kind of entity."""
