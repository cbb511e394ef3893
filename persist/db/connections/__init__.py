"""Connections before any statement runs: a cache of open ones, pool sizes, checks of a host application's connections."""
