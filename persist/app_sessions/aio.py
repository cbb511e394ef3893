"""`tx.app_sessions` of AsyncStore: every verb of the repositories as a coroutine."""

from persist.app_sessions.artifacts import AppArtifacts
from persist.app_sessions.memories import AppMemories
from persist.app_sessions.repository import AppSessionsDomain
from persist.app_sessions.sessions import AppSessions
from persist.db.transactions.async_transactions import AsyncRepository, AsyncWork, awaitable


class AsyncAppSessions(AsyncRepository[AppSessions]):
    """See AppSessions."""

    create = awaitable(AppSessions.create)
    append = awaitable(AppSessions.append)
    load = awaitable(AppSessions.load)
    of_app = awaitable(AppSessions.of_app)
    list = awaitable(AppSessions.list)
    get = awaitable(AppSessions.get)
    user_state = awaitable(AppSessions.user_state)
    delete = awaitable(AppSessions.delete)
    erase_user = awaitable(AppSessions.erase_user)


class AsyncAppArtifacts(AsyncRepository[AppArtifacts]):
    """See AppArtifacts."""

    save = awaitable(AppArtifacts.save)
    load = awaitable(AppArtifacts.load)
    versions = awaitable(AppArtifacts.versions)
    names = awaitable(AppArtifacts.names)
    delete = awaitable(AppArtifacts.delete)


class AsyncAppMemories(AsyncRepository[AppMemories]):
    """See AppMemories."""

    replace = awaitable(AppMemories.replace)
    add = awaitable(AppMemories.add)
    search = awaitable(AppMemories.search)
    delete = awaitable(AppMemories.delete)


class AsyncAppSessionsDomain:
    """See AppSessionsDomain."""

    def __init__(self, work: AsyncWork) -> None:
        domain = AppSessionsDomain(work.work)
        self.sessions = AsyncAppSessions(domain.sessions, work)
        self.artifacts = AsyncAppArtifacts(domain.artifacts, work)
        self.memories = AsyncAppMemories(domain.memories, work)
