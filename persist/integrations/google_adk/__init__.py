"""Google ADK on persist: `PersistSessionService`, `PersistArtifactService`, `PersistMemoryService`. The extra is `google-adk`."""

try:
    from persist.integrations.google_adk.artifacts import PersistArtifactService
    from persist.integrations.google_adk.encoding import InvalidArgument, SessionExists, SessionMissing, SessionStale
    from persist.integrations.google_adk.memories import PersistMemoryService
    from persist.integrations.google_adk.sessions import PersistSessionService
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "google":
        raise
    raise ImportError("persist.integrations.google_adk needs Google ADK: pip install 'agent-persist[google-adk]'.") from error

__all__ = [
    "InvalidArgument",
    "PersistArtifactService",
    "PersistMemoryService",
    "PersistSessionService",
    "SessionExists",
    "SessionMissing",
    "SessionStale",
]
