"""The entrance: Store, AsyncStore and their transactions."""
