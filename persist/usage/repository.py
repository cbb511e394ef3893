"""`tx.usage`: the repositories of the domain, and the sums."""

import builtins
from datetime import datetime

from persist.db.transactions.repository import F, Repository, on_demand, reads
from persist.db.values.pages import Page
from persist.usage import sums
from persist.usage.budgets import UsageBudgets
from persist.usage.calls import UsageCalls
from persist.usage.schemas import UsageSum

List = builtins.list


class Usage(Repository[F]):
    """What calls of models used and cost: `calls` one by one, sums by day, hour and group, and `budgets`."""

    calls = on_demand(UsageCalls[F])
    budgets = on_demand(UsageBudgets[F])

    @reads
    def by_day(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        group: str | None = None,
        model: str | None = None,
        agent: str | None = None,
        owner: str | None = None,
        workspace: str | None = None,
        workflow: str | None = None,
        scope: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[UsageSum]:
        """Sums of UTC days, newest first; days without calls are left out.

        `since`, `until`: days that begin from `since`'s day on and before `until`; None: all there are. `group`: a sum for each
        `model`, `agent`, `owner`, `workspace`, `workflow` or `scope` of a day. The others filter. Raises InvalidValue.
        """
        given = {"model": model, "agent": agent, "owner": owner, "workspace": workspace, "workflow": workflow, "scope": scope}
        return sums.by_bucket(self._work, "day", since, until, group, given, limit, after)

    @reads
    def by_hour(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        group: str | None = None,
        model: str | None = None,
        agent: str | None = None,
        owner: str | None = None,
        workspace: str | None = None,
        workflow: str | None = None,
        scope: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[UsageSum]:
        """Sums of UTC hours; see `by_day`."""
        given = {"model": model, "agent": agent, "owner": owner, "workspace": workspace, "workflow": workflow, "scope": scope}
        return sums.by_bucket(self._work, "hour", since, until, group, given, limit, after)

    @reads
    def by_group(
        self,
        group: str,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        model: str | None = None,
        agent: str | None = None,
        owner: str | None = None,
        workspace: str | None = None,
        workflow: str | None = None,
        scope: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[UsageSum]:
        """One sum for each `model`, `agent`, `owner`, `workspace`, `workflow` or `scope`, the one with the highest cost first.

        `since` and `until` are rounded down and up to UTC hours; None: all there are. Raises InvalidValue.
        """
        given = {"model": model, "agent": agent, "owner": owner, "workspace": workspace, "workflow": workflow, "scope": scope}
        return sums.by_group(self._work, group, since, until, given, limit, after)

    @reads
    def by_model(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        agent: str | None = None,
        owner: str | None = None,
        workspace: str | None = None,
        workflow: str | None = None,
        scope: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[UsageSum]:
        """`by_group("model")`."""
        given = {"agent": agent, "owner": owner, "workspace": workspace, "workflow": workflow, "scope": scope}
        return sums.by_group(self._work, "model", since, until, given, limit, after)
