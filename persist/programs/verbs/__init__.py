"""The verbs of tx.programs, one module per kind of entity."""
