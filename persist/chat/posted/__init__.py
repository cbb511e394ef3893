"""What a browser posts, as useChat of the AI SDK does: which of it is taken, decided without a database."""
