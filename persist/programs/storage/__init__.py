"""Rows of runs, executions and bindings, and the files beside them."""
