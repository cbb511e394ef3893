"""Many workflow runs at once, and the queries that a careful programmer writes by hand to list them."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import orjson
import psycopg

from benchmarks.floors import PRAGMAS

EXECUTIONS_PER_RUN = 2
_STATUSES = ("succeeded", "failed", "succeeded", "cancelled", "succeeded", "running", "succeeded", "paused")
_NAMES = ("triage", "build", "review", "release")
_RETIRED = "nightly"
"""The last of the names, in the older half: nobody has started that workflow since."""
_FIRST = datetime(2025, 1, 1, tzinfo=UTC)
_BATCH = 10_000
_RUN = (
    "id, workflow_name, trigger_id, repo, issue_number, current_phase, status, restart_count, max_restarts, lease_token,"
    " started_at, updated_at, finished_at, phase_history, context, scratch"
)
_EXECUTION = (
    "id, trigger_type, trigger_id, skill, started_at, finished_at, success, turns, duration_ms, cost_usd, input_tokens,"
    " output_tokens, cache_read_input_tokens, workflow_run_id"
)
_LISTED = (
    "id, workflow_name, trigger_id, repo, issue_number, current_phase, phase_history, status, restart_count,"
    " started_at, updated_at, finished_at"
)

TRIGGER = "issue/7"
FILTERS: dict[str, Mapping[str, Any]] = {
    "no filter": {},
    "a status": {"status": "failed"},
    "a name and a status": {"workflow_name": "build", "status": "failed"},
    "a trigger": {"trigger_id": TRIGGER},
    "a name not seen lately": {"workflow_name": _RETIRED},
}
"""Each has at least twenty rows among a thousand."""


class Raw(Protocol):
    """A driver's connection in autocommit."""

    def execute(self, sql: Any, values: Any = ..., /) -> Any: ...
    def cursor(self) -> Any: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


def connect(url: str, schema: str | None = None) -> Raw:
    """A raw connection with the same durability as ours; a schema on Postgres."""
    if url.startswith("sqlite"):
        lite = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, cached_statements=256)
        for pragma in PRAGMAS:
            lite.execute(f"PRAGMA {pragma}").fetchall()
        return lite
    return psycopg.connect(url, autocommit=True, options=f"-c search_path={schema}")


def fill(url: str, schema: str | None, count: int) -> None:
    """That many runs, about 600 bytes each, with two executions each, into empty tables."""
    with closing(connect(url, schema)) as raw:
        _fill(raw, count)


def _fill(raw: Raw, count: int) -> None:
    placeholder = "?" if isinstance(raw, sqlite3.Connection) else "%s"
    if isinstance(raw, sqlite3.Connection):
        raw.execute("PRAGMA synchronous = OFF")
        raw.execute("PRAGMA cache_size = -400000")
    for first in range(0, count, _BATCH):
        numbers = range(first, min(count, first + _BATCH))
        raw.execute("BEGIN")
        cursor = raw.cursor()
        for table, columns, rows in (
            ("workflow_runs", _RUN, (_run(number, count) for number in numbers)),
            ("executions", _EXECUTION, (row for number in numbers for row in _executions(number, count))),
        ):
            marks = ", ".join([placeholder] * len(columns.split()))
            cursor.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows)
        raw.execute("COMMIT")
    if isinstance(raw, sqlite3.Connection):
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    else:
        for table in ("workflow_runs", "executions"):
            raw.execute(f"VACUUM ANALYZE {table}")  # as autovacuum would, some time later


def page_query(raw: Raw, filters: Mapping[str, str]) -> str:
    """The newest 20 and one more, with the tokens and the cost of each: the quickest way that we know on each database."""
    lite = isinstance(raw, sqlite3.Connection)
    where = " AND ".join(f"{name} = {'?' if lite else '%s'}" for name in filters)
    columns = _LISTED if lite else _LISTED.replace("phase_history", "phase_history::text")
    page = f"SELECT {columns} FROM workflow_runs {'WHERE ' * bool(where)}{where} ORDER BY started_at DESC, id DESC LIMIT 21"
    tokens = "coalesce(e.input_tokens, 0) + coalesce(e.output_tokens, 0) + coalesce(e.cache_read_input_tokens, 0)"
    total, cost = f"coalesce(sum({tokens}), 0)", "coalesce(sum(e.cost_usd), 0)"
    used = "FROM executions e WHERE e.workflow_run_id = p.id"
    newest = "ORDER BY p.started_at DESC, p.id DESC"
    if lite:
        two = f"(SELECT {total} {used}) AS total_tokens, (SELECT {cost} {used}) AS cost_usd"
        return f"SELECT p.*, {two} FROM ({page}) p {newest}"
    once = f"LATERAL (SELECT {total}::bigint AS total_tokens, {cost} AS cost_usd {used}) u"
    return f"SELECT p.*, u.* FROM ({page}) p CROSS JOIN {once} {newest}"


def page_by_hand(raw: Raw, query: str, values: Sequence[Any]) -> list[dict[str, Any]]:
    """Run it, and make dicts of the rows; the history is JSON."""
    cursor = raw.execute(query, values)
    names = [column[0] for column in cursor.description]
    found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    for run in found:
        run["phase_history"] = orjson.loads(run["phase_history"])
    return found


def _name(number: int, count: int) -> str:
    name = _NAMES[number % len(_NAMES)]
    return _RETIRED if name == _NAMES[-1] and number < count // 2 else name


def _instant(number: int) -> str:
    return (_FIRST + timedelta(seconds=number)).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _run(number: int, count: int) -> tuple[Any, ...]:
    status, at = _STATUSES[number // len(_NAMES) % len(_STATUSES)], _instant(number)
    history = [{"phase": phase, "timestamp": at, "execution": f"exe_{number:026d}"} for phase in ("plan", "apply")]
    context = {"title": "Something does not work " * 4, "url": f"https://example.org/issues/{number}", "labels": ["bug", "new"]}
    return (
        f"run_{number:026d}",
        _name(number, count),
        f"issue/{number % max(1, count // 40)}",
        "example/project",
        number,
        "apply",
        status,
        0,
        3,
        0,
        at,
        at,
        None if status in ("running", "paused") else at,
        orjson.dumps(history).decode(),
        orjson.dumps(context).decode(),
        orjson.dumps({"branch": f"fix/{number}", "notes": "x" * 60}).decode(),
    )


def _executions(number: int, count: int) -> Iterator[tuple[Any, ...]]:
    name, trigger, at = _name(number, count), f"issue/{number % max(1, count // 40)}", _instant(number)
    for index, phase in enumerate(("plan", "apply")[:EXECUTIONS_PER_RUN]):
        yield (
            f"exe_{number * EXECUTIONS_PER_RUN + index:026d}",
            "github",
            trigger,
            f"{name}:{phase}",
            at,
            at,
            True,
            4,
            1200,
            0.0125,
            1000,
            200,
            300,
            f"run_{number:026d}",
        )
