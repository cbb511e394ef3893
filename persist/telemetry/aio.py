"""`tx.telemetry` of AsyncStore: every verb of the repositories as a coroutine."""

from persist.db.transactions.async_transactions import AsyncRepository, AsyncWork, awaitable
from persist.telemetry.links import GithubLinks
from persist.telemetry.repository import Telemetry
from persist.telemetry.status import StatusLog
from persist.telemetry.tags import AgentTags
from persist.telemetry.tasks import Tasks
from persist.telemetry.tools import ToolHistory
from persist.telemetry.usage import UsageSamples


class AsyncStatusLog(AsyncRepository[StatusLog]):
    """See StatusLog."""

    record = awaitable(StatusLog.record)
    current = awaitable(StatusLog.current)
    latest = awaitable(StatusLog.latest)
    last = awaitable(StatusLog.last)
    at = awaitable(StatusLog.at)
    history = awaitable(StatusLog.history)
    durations = awaitable(StatusLog.durations)
    trim = awaitable(StatusLog.trim)


class AsyncAgentTags(AsyncRepository[AgentTags]):
    """See AgentTags."""

    list = awaitable(AgentTags.list)
    record = awaitable(AgentTags.record)


class AsyncGithubLinks(AsyncRepository[GithubLinks]):
    """See GithubLinks."""

    list = awaitable(GithubLinks.list)
    upsert = awaitable(GithubLinks.upsert)
    record_error = awaitable(GithubLinks.record_error)
    get = awaitable(GithubLinks.get)
    due = awaitable(GithubLinks.due)


class AsyncUsageSamples(AsyncRepository[UsageSamples]):
    """See UsageSamples."""

    sample = awaitable(UsageSamples.sample)
    totals = awaitable(UsageSamples.totals)
    today = awaitable(UsageSamples.today)
    trim = awaitable(UsageSamples.trim)


class AsyncToolHistory(AsyncRepository[ToolHistory]):
    """See ToolHistory."""

    record = awaitable(ToolHistory.record)
    last = awaitable(ToolHistory.last)
    trim = awaitable(ToolHistory.trim)


class AsyncTasks(AsyncRepository[Tasks]):
    """See Tasks."""

    list = awaitable(Tasks.list)
    poll = awaitable(Tasks.poll)
    claim = awaitable(Tasks.claim)
    renew = awaitable(Tasks.renew)
    complete = awaitable(Tasks.complete)
    fail = awaitable(Tasks.fail)
    retry = awaitable(Tasks.retry)
    cancel = awaitable(Tasks.cancel)
    purge = awaitable(Tasks.purge)


class AsyncTelemetry:
    """See Telemetry."""

    def __init__(self, work: AsyncWork) -> None:
        telemetry = Telemetry(work.work)
        self.status = AsyncStatusLog(telemetry.status, work)
        self.tags = AsyncAgentTags(telemetry.tags, work)
        self.links = AsyncGithubLinks(telemetry.links, work)
        self.usage = AsyncUsageSamples(telemetry.usage, work)
        self.tools = AsyncToolHistory(telemetry.tools, work)
        self.tasks = AsyncTasks(telemetry.tasks, work)
