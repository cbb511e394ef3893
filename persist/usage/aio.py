"""`tx.usage` of AsyncStore: every verb of the repositories as a coroutine."""

from persist.db.transactions.async_transactions import AsyncRepository, AsyncWork, awaitable
from persist.usage.budgets import UsageBudgets
from persist.usage.calls import UsageCalls
from persist.usage.repository import Usage


class AsyncUsageCalls(AsyncRepository[UsageCalls]):
    """See UsageCalls."""

    record = awaitable(UsageCalls.record)
    list = awaitable(UsageCalls.list)


class AsyncUsageBudgets(AsyncRepository[UsageBudgets]):
    """See UsageBudgets."""

    set = awaitable(UsageBudgets.set)
    get = awaitable(UsageBudgets.get)
    list = awaitable(UsageBudgets.list)
    standings = awaitable(UsageBudgets.standings)
    check = awaitable(UsageBudgets.check)
    delete = awaitable(UsageBudgets.delete)


class AsyncUsage(AsyncRepository[Usage]):
    """See Usage."""

    by_day = awaitable(Usage.by_day)
    by_hour = awaitable(Usage.by_hour)
    by_group = awaitable(Usage.by_group)
    by_model = awaitable(Usage.by_model)

    def __init__(self, work: AsyncWork) -> None:
        usage = Usage(work.work)
        super().__init__(usage, work)
        self.calls = AsyncUsageCalls(usage.calls, work)
        self.budgets = AsyncUsageBudgets(usage.budgets, work)
