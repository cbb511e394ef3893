"""The verbs of tx.chat, one module for each kind of object or rule."""
