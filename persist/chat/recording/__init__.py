"""Recorders: the way of a chunk from `feed` to a durable row."""
