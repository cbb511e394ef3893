"""Prepared statements: compiled once per dialect and schema, run on the driver's cursor, rows decoded."""
