"""`tx.telemetry`: the repositories of the domain."""

from persist.db.transactions.repository import Domain, F, on_demand
from persist.telemetry.links import GithubLinks
from persist.telemetry.status import StatusLog
from persist.telemetry.tasks import Tasks
from persist.telemetry.tools import AgentTags, ToolHistory
from persist.telemetry.usage import UsageSamples


class Telemetry(Domain[F]):
    """Status, tags, links, usage and tool calls of agent instances, and a workspace's task queue."""

    status = on_demand(StatusLog[F])
    tags = on_demand(AgentTags[F])
    links = on_demand(GithubLinks[F])
    usage = on_demand(UsageSamples[F])
    tools = on_demand(ToolHistory[F])
    tasks = on_demand(Tasks[F])
