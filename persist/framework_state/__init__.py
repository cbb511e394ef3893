"""What only adapters of frameworks keep: a domain for each framework (docs/architecture.md says which)."""
