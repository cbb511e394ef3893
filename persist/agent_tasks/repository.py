"""`tx.agent_tasks`: the repositories of the domain."""

from persist.agent_tasks.tasks import AgentTasks
from persist.agent_tasks.webhooks import AgentTaskWebhooks
from persist.db.transactions.repository import Domain, F, on_demand


class AgentTaskDomain(Domain[F]):
    """Tasks that agents do for others, and whom to notify of them."""

    tasks = on_demand(AgentTasks[F])
    webhooks = on_demand(AgentTaskWebhooks[F])
