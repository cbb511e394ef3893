"""The database below every domain: types, transactions, statements. It knows no domain."""
