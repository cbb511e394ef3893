"""Database dialects: one interface, and a sub-package each for SQLite and Postgres."""
