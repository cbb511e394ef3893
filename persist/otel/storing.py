"""`spans`: what a store holds, as spans by the GenAI semantic conventions."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Literal

from persist.db.values.arguments import check_flag
from persist.db.values.clock import as_utc
from persist.errors import InvalidValue, NotFound, shown
from persist.otel.stored_spans import StoredSpan, instance_spans, loose_span, run_spans, session_spans
from persist.store.async_store import AsyncStore
from persist.store.store import Store
from persist.store.transaction import work_of
from persist.telemetry.windows import instances

Domain = Literal["chat", "workflows", "telemetry"]
DOMAINS: tuple[Domain, ...] = ("chat", "workflows", "telemetry")
_PAGE = 100


def spans(
    store: Store | AsyncStore, *, domains: Iterable[Domain] = DOMAINS, since: datetime | None = None, content: bool = False
) -> Iterator[StoredSpan]:
    """What the store holds, as spans: a parent before its children, and the same ids in every export.

    chat        a trace per session: an agent's invocation, in it a model call per answer, in it the tools that it called
    workflows   a trace per run: a workflow's invocation, in it an agent's invocation per execution
    telemetry   a trace per instance: its usage by the second, and its tool calls

    since    only sessions and runs that changed then or later, and telemetry of then or later
    content  also the arguments and results of tools

    It reads in several short snapshots. With an AsyncStore iterate in a thread, since it blocks. Rows that cannot be read are
    left out, with a warning of the logger `persist`.
    """
    chosen = tuple(domains)
    for domain in chosen:
        if domain not in DOMAINS:
            raise InvalidValue("domains", f"{shown(domain)} is none of {', '.join(DOMAINS)}.")
    whole = check_flag("content", content)
    begin = None if since is None else as_utc("since", since)
    source = store._store if isinstance(store, AsyncStore) else store
    makers: dict[Domain, Callable[[], Iterator[StoredSpan]]] = {
        "chat": lambda: _chat(source, begin, whole),
        "workflows": lambda: _workflows(source, begin),
        "telemetry": lambda: _telemetry(source, begin),
    }
    return (span for domain in DOMAINS if domain in chosen for span in makers[domain]())


def _chat(store: Store, since: datetime | None, content: bool) -> Iterator[StoredSpan]:
    after: str | None = None
    while True:
        with store.read() as tx:
            page = tx.chat.sessions.list(include_archived=True, limit=_PAGE, after=after)
        for session in page.items:
            if since is not None and session.updated_at < since:
                continue
            with store.read() as tx:
                try:
                    found = session_spans(work_of(tx), session, content=content)
                except NotFound:  # deleted since the list was read
                    continue
            yield from found
        if (after := page.cursor) is None:
            return


def _workflows(store: Store, since: datetime | None) -> Iterator[StoredSpan]:
    after: str | None = None
    while True:
        with store.read() as tx:
            page = tx.workflows.runs.list(limit=_PAGE, after=after)
        for run in page.items:
            if since is not None and run.updated_at < since:
                continue
            with store.read() as tx:
                try:
                    executions = tx.workflows.executions.for_run(run.id)
                except NotFound:  # pruned since the list was read
                    continue
            yield from run_spans(run, executions)
        if (after := page.cursor) is None:
            break
    while True:
        with store.read() as tx:
            executed = tx.workflows.executions.list(limit=_PAGE, after=after)
        for execution in executed.items:
            if execution.workflow_run_id is None and (since is None or (execution.finished_at or execution.started_at) >= since):
                yield loose_span(execution)
        if (after := executed.cursor) is None:
            return


def _telemetry(store: Store, since: datetime | None) -> Iterator[StoredSpan]:
    with store.read() as tx:
        found = instances(work_of(tx))
    for instance_id in found:
        yield from instance_spans(store, instance_id, since)
