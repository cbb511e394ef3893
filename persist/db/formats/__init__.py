"""The formats in which rows leave and enter a database: the published form of SQLite files, JSON rows, Postgres's COPY."""
