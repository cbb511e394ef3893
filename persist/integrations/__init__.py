"""Adapters that keep the state of agent frameworks in a store. Each has its own extra and is imported only on request."""
