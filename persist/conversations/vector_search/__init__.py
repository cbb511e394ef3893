"""Search for the messages whose embeddings are nearest to a query."""
