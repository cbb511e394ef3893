"""Checkpoints: the state of a graph runner's threads after each step, and memories that agents keep across threads."""
