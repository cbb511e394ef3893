"""Checkpoints: the state of threads of graph runners, step by step, and what agents remember across threads."""
