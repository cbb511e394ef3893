"""Histories: conversations as logs of messages that are stored once, and runs of agents with their steps."""
