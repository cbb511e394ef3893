"""`tx.telemetry`: the repositories of the domain."""

from persist.db.transactions.repository import TransactionPerVerb
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.telemetry.links import GithubLinks
from persist.telemetry.status import StatusLog
from persist.telemetry.tags import AgentTags
from persist.telemetry.tasks import Tasks
from persist.telemetry.tools import ToolHistory
from persist.telemetry.usage import UsageSamples


class Telemetry:
    """Status, tags, links, usage and tool calls of agent instances, and a workspace's task queue."""

    def __init__(self, work: UnitOfWork | TransactionPerVerb) -> None:
        self.status = StatusLog(work)
        self.tags = AgentTags(work)
        self.links = GithubLinks(work)
        self.usage = UsageSamples(work)
        self.tools = ToolHistory(work)
        self.tasks = Tasks(work)
