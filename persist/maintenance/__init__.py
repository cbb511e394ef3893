"""Keeping a store healthy for years: what the command line calls, as functions over an open store."""
