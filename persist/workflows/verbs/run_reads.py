"""Reading workflow runs: one, lists and counts, and who holds which."""

from collections.abc import Coroutine, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack, overload

from sqlalchemy import select

from persist.db.statements.prepared import Statement, param
from persist.db.transactions.repository import Async, F, Repository, Sync, reads
from persist.db.values.arguments import check_flag
from persist.db.values.counts import Count
from persist.db.values.pages import Page, PagedList
from persist.workflows.family_values import FamilyTotals
from persist.workflows.models import IS_UNFINISHED_RUN, runs
from persist.workflows.schemas import Lease, RunRow, WorkflowRun, WorkflowRunSummary
from persist.workflows.storage.run_rows import RUN, get_run
from persist.workflows.verbs import leases, run_lists
from persist.workflows.verbs.family_reads import family_totals

List = list
_R = runs.c
_BY_TRIGGER = Statement(
    select(*RUN.columns)
    .where(_R.trigger_id == param("trigger_id"), IS_UNFINISHED_RUN)
    .order_by(_R.started_at.desc(), _R.id.desc())
    .limit(1)
)
_HAS_TRIGGER = Statement(select(_R.id).where(_R.trigger_id == param("trigger_id")).limit(1))


class _Counted(TypedDict, total=False):
    """The filters of a count."""

    status: str | Sequence[str] | None
    workflow_name: str | None
    since: datetime | None
    failure_kind: str | None


class RunReads(Repository[F]):
    """The reading verbs of `tx.workflows.runs`."""

    @reads
    def get(self, id: str) -> WorkflowRun:
        """The run with all columns. Raises NotFound."""
        return get_run(self._work, id)

    @reads
    def list(
        self,
        *,
        status: str | Sequence[str] | None = None,
        workflow_name: str | None = None,
        trigger_id: str | None = None,
        since: datetime | None = None,
        failure_kind: str | None = None,
        parent_run_id: str | None = None,
        limit: int = 20,
        after: str | None = None,
    ) -> Page[WorkflowRunSummary]:
        """Runs, newest started first, without their blobs; `since` is inclusive, no status means every status.

        Pass `cursor` as `after` for the next page. Totals: `count`.
        """
        filters = run_lists.Filters.of(
            self._work,
            status=status,
            workflow_name=workflow_name,
            trigger_id=trigger_id,
            since=since,
            failure_kind=failure_kind,
            parent_run_id=parent_run_id,
        )
        return run_lists.page(self._work, filters, limit, after, run_lists.SUMMARY)

    @reads
    def list_rows(
        self,
        *,
        status: str | Sequence[str] | None = None,
        workflow_name: str | None = None,
        trigger_id: str | None = None,
        since: datetime | None = None,
        failure_kind: str | None = None,
        parent_run_id: str | None = None,
        limit: int = 20,
        after: str | None = None,
    ) -> Page[RunRow]:
        """The page of `list` as named tuples, which cost less to make; cursors of both verbs are interchangeable."""
        filters = run_lists.Filters.of(
            self._work,
            status=status,
            workflow_name=workflow_name,
            trigger_id=trigger_id,
            since=since,
            failure_kind=failure_kind,
            parent_run_id=parent_run_id,
        )
        return run_lists.page(self._work, filters, limit, after, RunRow._make)

    @overload
    def count(self: Repository[Sync], /, *, exact: Literal[False], **filters: Unpack[_Counted]) -> Count: ...
    @overload
    def count(self: Repository[Sync], /, *, exact: bool = True, **filters: Unpack[_Counted]) -> int: ...
    @overload
    def count(
        self: Repository[Async], /, *, exact: Literal[False], **filters: Unpack[_Counted]
    ) -> Coroutine[Any, Any, Count]: ...
    @overload
    def count(self: Repository[Async], /, *, exact: bool = True, **filters: Unpack[_Counted]) -> Coroutine[Any, Any, int]: ...
    @reads
    def count(
        self,
        *,
        status: str | Sequence[str] | None = None,
        workflow_name: str | None = None,
        since: datetime | None = None,
        failure_kind: str | None = None,
        exact: bool = True,
    ) -> Any:
        """How many runs meet the filters of `list`.

        An exact count reads all of them, and is an int. With `exact=False` at most 10,000 are read, and the result is a Count, an
        int with `exact` and `basis`. If there are more, it is an estimate of Postgres's planner, or on SQLite "at least" 10,000.
        """
        filters = run_lists.Filters.of(
            self._work, status=status, workflow_name=workflow_name, since=since, failure_kind=failure_kind
        )
        return run_lists.count(self._work, filters, exact=check_flag("exact", exact))

    @reads
    def children(
        self, id: str, *, status: str | Sequence[str] | None = None, limit: int = 20, after: str | None = None
    ) -> Page[WorkflowRunSummary]:
        """The runs that were created for this one, as `list` shows them. Raises NotFound without the run and children."""
        filters = run_lists.Filters.of(self._work, status=status, parent_run_id=self._work.label("id", id))
        page = run_lists.page(self._work, filters, limit, after, run_lists.SUMMARY)
        if not page.items and after is None and not status:
            get_run(self._work, id)
        return page

    @reads
    def family(self, id: str) -> FamilyTotals:
        """What the run and all its descendants cost, and how many of them have which status; of the descendants if it is gone.

        Raises NotFound.
        """
        return family_totals(self._work, id)

    @reads
    def list_active(self, *, limit: int | None = None, after: str | None = None) -> PagedList[WorkflowRunSummary]:
        """Every run that is running or paused, newest first; with a `limit` a page.

        Pass its `cursor` as `after` for the next page.
        """
        return run_lists.active(self._work, limit, after)

    @reads
    def list_queued(self, *, limit: int | None = None, after: str | None = None) -> PagedList[WorkflowRunSummary]:
        """Every run that waits to be admitted or claimed, oldest first; with a `limit` a page.

        Pass its `cursor` as `after` for the next page.
        """
        return run_lists.queued(self._work, limit, after)

    @reads
    def distinct_names(self) -> List[str]:
        """Every workflow name that has runs, sorted."""
        return [name for (name,) in self._work.rows(run_lists.NAMES)]

    @reads
    def get_by_trigger(self, trigger_id: str) -> WorkflowRun | None:
        """The newest run of the trigger that has not ended."""
        row = self._work.row(_BY_TRIGGER, trigger_id=self._work.label("trigger_id", trigger_id))
        return RUN.optional(row)

    @reads
    def has_run_for_trigger(self, trigger_id: str) -> bool:
        """Whether the trigger ever had a run, of whatever status."""
        return self._work.row(_HAS_TRIGGER, trigger_id=self._work.label("trigger_id", trigger_id)) is not None

    @reads
    def held_by(self, worker: str) -> List[Lease]:
        """The unexpired leases that the worker holds, the run started first coming first.

        For a worker that was cancelled or restarted after a claim committed, before it received the lease.
        """
        return leases.held_by(self._work, worker)
