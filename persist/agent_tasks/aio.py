"""`tx.agent_tasks` of AsyncStore: every verb of the repositories as a coroutine."""

from persist.agent_tasks.repository import AgentTaskDomain
from persist.agent_tasks.tasks import AgentTasks
from persist.agent_tasks.webhooks import AgentTaskWebhooks
from persist.db.transactions.async_transactions import AsyncRepository, AsyncWork, awaitable


class AsyncAgentTasks(AsyncRepository[AgentTasks]):
    """See AgentTasks."""

    save = awaitable(AgentTasks.save)
    get = awaitable(AgentTasks.get)
    list = awaitable(AgentTasks.list)
    latest = awaitable(AgentTasks.latest)
    by_id = awaitable(AgentTasks.by_id)
    delete = awaitable(AgentTasks.delete)


class AsyncAgentTaskWebhooks(AsyncRepository[AgentTaskWebhooks]):
    """See AgentTaskWebhooks."""

    set = awaitable(AgentTaskWebhooks.set)
    list = awaitable(AgentTaskWebhooks.list)
    delete = awaitable(AgentTaskWebhooks.delete)


class AsyncAgentTaskDomain:
    """See AgentTaskDomain."""

    def __init__(self, work: AsyncWork) -> None:
        domain = AgentTaskDomain(work.work)
        self.tasks = AsyncAgentTasks(domain.tasks, work)
        self.webhooks = AsyncAgentTaskWebhooks(domain.webhooks, work)
