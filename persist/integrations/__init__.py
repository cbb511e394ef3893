"""Frameworks whose state persist keeps: each has an extra of its own, and nothing here is imported unless asked for."""
