"""The Postgres dialect and its tools."""
