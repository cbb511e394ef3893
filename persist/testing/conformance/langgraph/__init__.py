"""Checks of what LangGraph compiles a graph with: `CHECKS` of a checkpointer, `STORE_CHECKS` of a store.

LangGraph publishes a kit for checkpointers, `langgraph-checkpoint-conformance`: these checks are what it does not ask for.
"""

from persist.testing.conformance.langgraph.savers import CHECKS
from persist.testing.conformance.langgraph.stores import STORE_CHECKS

__all__ = ["CHECKS", "STORE_CHECKS"]
