"""What SQLite and Postgres do differently, and nothing else."""
