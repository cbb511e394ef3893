"""Locks, permits, worker threads and owners, which know nothing of databases."""
