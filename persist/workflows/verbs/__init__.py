"""The verbs of tx.workflows, one module per kind of entity."""
