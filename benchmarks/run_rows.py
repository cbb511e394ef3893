"""Many workflow runs at once, and the queries that a careful programmer writes by hand to list them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, TypeAdapter

from benchmarks import filling
from benchmarks.filling import Raw

STATUSES = ("succeeded", "failed", "succeeded", "cancelled", "succeeded", "running", "succeeded", "paused")
_NAMES = ("triage", "build", "review", "release")
_RETIRED = "nightly"
"""The last of the names, in the older half: nobody has started that workflow since."""
_FIRST = 1_735_689_600  # 2025-01-01
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


def fill(url: str, schema: str | None, count: int) -> None:
    """That many runs, about 600 bytes each, with two executions each, into empty tables. Nobody else may have a file open."""
    lite = url.startswith("sqlite")
    filling.fill(url, schema, ("workflow_runs", "executions"), (runs(count, lite=lite), executions(count, lite=lite)))


def runs(count: int, *, lite: bool, statuses: Sequence[str] = STATUSES) -> str:
    """The statement that makes so many runs, every one a second after the one before, with these statuses in turn."""
    at, text, name = _at("n", lite=lite), _text_of_at("n", lite=lite), _name("n", count)
    status = _one_of(statuses, f"n / {len(_NAMES)}")
    phases = " || ',' || ".join(f"""'{{"phase":"{phase}","timestamp":"' || {text} || '"}}'""" for phase in ("plan", "apply"))
    title = "Something does not work " * 4
    context = f"""'{{"title":"{title}","url":"https://example.org/issues/' || n || '","labels":["bug","new"]}}'"""
    scratch = f"""'{{"branch":"fix/' || n || '","notes":"{"x" * 60}"}}'"""
    blob = "" if lite else "::jsonb"
    return f"""
{filling.counted(count, lite=lite, insert=f"workflow_runs ({_LISTED}, max_restarts, lease_token, context, scratch)")}
SELECT {filling.id_of("run", "n", lite=lite)}, {name}, {_trigger("n", count)}, 'example/project', n, 'apply',
       ('[' || {phases} || ']'){blob}, {status}, 0, {at}, {at},
       CASE WHEN {status} IN ('running', 'paused') THEN NULL ELSE {at} END,
       3, 0, ({context}){blob}, ({scratch}){blob}
FROM n"""


def executions(count: int, *, lite: bool) -> str:
    """The statement that makes two executions for each of so many runs."""
    run = "(n / 2)"
    at = _at(run, lite=lite)
    columns = (
        "id, trigger_type, trigger_id, skill, started_at, finished_at, success, turns, duration_ms, cost_usd, input_tokens,"
        " output_tokens, cache_read_input_tokens, workflow_run_id"
    )
    return f"""
{filling.counted(2 * count, lite=lite, insert=f"executions ({columns})")}
SELECT {filling.id_of("exe", "n", lite=lite)}, 'github', {_trigger(run, count)},
       {_name(run, count)} || CASE n % 2 WHEN 0 THEN ':plan' ELSE ':apply' END, {at}, {at}, TRUE, 4, 1200, 0.0125, 1000,
       200, 300, {filling.id_of("run", run, lite=lite)}
FROM n"""


def _at(number: str, *, lite: bool) -> str:
    """Every run a second after the one before."""
    return filling.instant(f"{_FIRST} + {number}", lite=lite)


def _text_of_at(number: str, *, lite: bool) -> str:
    if lite:
        return _at(number, lite=True)
    return f"""to_char(to_timestamp({_FIRST} + {number}) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS".000Z"')"""


def _trigger(number: str, count: int) -> str:
    return f"'issue/' || ({number} % {max(1, count // 40)})"


def _name(number: str, count: int) -> str:
    return f"CASE WHEN {number} % 4 = 3 AND {number} < {count // 2} THEN '{_RETIRED}' ELSE {_one_of(_NAMES, number)} END"


def _one_of(words: Sequence[str], number: str) -> str:
    cases = " ".join(f"WHEN {place} THEN '{word}'" for place, word in enumerate(words))
    return f"CASE {number} % {len(words)} {cases} END"


# ---------------------------------------------------------------- by hand


class Listed(BaseModel):
    """What a careful programmer declares for a line of a list."""

    model_config = ConfigDict(frozen=True)

    id: str
    workflow_name: str
    trigger_id: str
    repo: str | None
    issue_number: int | None
    current_phase: str
    phase_history: list[Any]
    status: str
    restart_count: int
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    total_tokens: int
    cost_usd: float


_LINES = TypeAdapter(list[Listed])


def page_query(raw: Raw, filters: Mapping[str, str]) -> str:
    """The newest 20 and one more, with the tokens and the cost of each: the quickest way that we know on each database."""
    lite = filling.is_file(raw)
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


def rows_by_hand(raw: Raw, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Run it, and decode what the database has as text: the history is JSON, and a file has instants as text too."""
    found = raw.execute(query, values).fetchall()
    if not filling.is_file(raw):
        return [(*row[:6], orjson.loads(row[6]), *row[7:]) for row in found]
    at = datetime.fromisoformat
    return [
        (*row[:6], orjson.loads(row[6]), *row[7:9], at(row[9]), at(row[10]), row[11] and at(row[11]), *row[12:]) for row in found
    ]


def dicts_by_hand(raw: Raw, query: str, values: Sequence[Any]) -> list[dict[str, Any]]:
    """Run it, and make dicts of the rows; the history is JSON."""
    cursor = raw.execute(query, values)
    names = [column[0] for column in cursor.description]
    found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    for run in found:
        run["phase_history"] = orjson.loads(run["phase_history"])
    return found


def values_by_hand(raw: Raw, query: str, values: Sequence[Any]) -> list[Listed]:
    """The same as frozen Pydantic values."""
    return _LINES.validate_python(dicts_by_hand(raw, query, values))
