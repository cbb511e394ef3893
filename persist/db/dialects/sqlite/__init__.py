"""The SQLite dialect and its tools."""
