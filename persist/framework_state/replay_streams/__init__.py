"""Replay streams: what a server sent to the client of a session, kept for a client that lost its connection."""
