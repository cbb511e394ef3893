"""Everything that is true of SQLite only."""
