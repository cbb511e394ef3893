"""`tx.telemetry`: the repositories of the domain."""

from persist.db.work import Work
from persist.telemetry.links import GithubLinks
from persist.telemetry.status import StatusLog
from persist.telemetry.tags import AgentTags
from persist.telemetry.tasks import Tasks
from persist.telemetry.tools import ToolHistory
from persist.telemetry.usage import UsageSamples


class Telemetry:
    """What instances of agents do and use, and the queue of a workspace's tasks."""

    def __init__(self, work: Work) -> None:
        self.status = StatusLog(work)
        self.tags = AgentTags(work)
        self.links = GithubLinks(work)
        self.usage = UsageSamples(work)
        self.tools = ToolHistory(work)
        self.tasks = Tasks(work)
