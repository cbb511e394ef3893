"""Replay streams: messages that a server sent to a session's client, kept so that a client that lost its connection gets the rest."""
