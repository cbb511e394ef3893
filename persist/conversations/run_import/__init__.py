"""Importing folders of runs as conversations."""
