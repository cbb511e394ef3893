"""`tx.app_sessions`: the repositories of the domain."""

from persist.db.transactions.repository import Domain, F, on_demand
from persist.framework_state.app_sessions.artifacts import AppArtifacts
from persist.framework_state.app_sessions.memories import AppMemories
from persist.framework_state.app_sessions.sessions import AppSessions


class AppSessionsDomain(Domain[F]):
    """Sessions of an application's users with agents, their artifacts, and memories across sessions."""

    sessions = on_demand(AppSessions[F])
    artifacts = on_demand(AppArtifacts[F])
    memories = on_demand(AppMemories[F])
