"""What every domain stands on: values, statements, dialects, transactions. docs/architecture.md shows its floors."""
