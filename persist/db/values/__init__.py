"""Plain values and their checks: instants and their column types, ids, JSON, frozen models, pages."""
