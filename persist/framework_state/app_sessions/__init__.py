"""Sessions of an application's users with agents: events, state in three scopes, artifacts with versions, and memories."""
