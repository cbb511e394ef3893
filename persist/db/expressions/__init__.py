"""SQL expressions and clauses that SQLAlchemy does not offer for both databases, rendered for each."""
