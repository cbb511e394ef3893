"""Everything that is true of Postgres only."""
