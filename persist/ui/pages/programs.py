"""Runs of programs: the statements as a tree, values by scope, agents' memories, what others wrote, and where it would resume."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from persist.cli.nouns import Answer
from persist.cli.programs import RUNS, as_tree, run_of, value_of
from persist.db.concurrency.ownership import place_of
from persist.errors import InvalidValue, PersistError
from persist.programs.schemas import Binding, ProgramExecution, ProgramRun, RunStatus
from persist.programs.verbs.audits import RAW_WRITE
from persist.ui.charts import Stretch
from persist.ui.views import TEXT_AT_FIRST, Section, View, Visit

_STATEMENTS = 200
"""How many statements a page has."""
_LINES = 40
"""How many statements a time line has."""
_MOST = 200
"""How many values, findings and calls of an agent a page has."""
_DEEPEST = 12
"""How deep statements are indented."""
_WHOLE = 4 << 20
"""How much of a value is shown when all of it is asked for."""


def _wanted(visit: Visit) -> dict[str, Any]:
    return {"status": visit.one_of("status", RunStatus)}


def _list(visit: Visit) -> dict[str, Any]:
    found = visit.tx.programs.runs.list(**_wanted(visit), **visit.page())
    return {
        "title": "Programs",
        "page": found,
        "statuses": [str(status) for status in RunStatus],
        "holders": {run.id: _holder(run) for run in found.items},
        "refresh": not visit.text("after"),
    }


def _holder(run: ProgramRun) -> str | None:
    """Who runs it, as a person says it."""
    if run.held_by is None:
        return None
    host, pid = place_of(run.held_by)
    return host if pid is None else f"{host}, process {pid}"


def _show(visit: Visit) -> dict[str, Any]:
    tx, id = visit.tx.programs, visit.values["id"]
    point = tx.runs.resume_point(id)
    executions = tx.executions.list(id)
    walked = list(as_tree(executions))
    first = _first(visit, len(walked))
    agent = visit.text("agent")
    findings, not_audited = _audited(visit, id)
    raw = [one for one in findings if one.code == RAW_WRITE]
    others = [one for one in findings if one.code != RAW_WRITE]
    return {
        "title": point.run.program_path or point.run.id,
        "run": point.run,
        "holder": _holder(point.run),
        "point": point,
        "ended": point.run.status == RunStatus.COMPLETED,
        "statements": [(one, min(depth, _DEEPEST), depth) for one, depth in walked[first : first + _STATEMENTS]],
        "first": first,
        "number": len(walked),
        "next": first + _STATEMENTS if len(walked) > first + _STATEMENTS else None,
        "line": list(islice(_stretches(walked[first : first + _STATEMENTS]), _LINES)),
        "scopes": _scopes(point.bindings[:_MOST], [one for one, _ in walked], point.bindings),
        "bindings": len(point.bindings),
        "more_bindings": len(point.bindings) - _MOST,
        "agents": point.agents[:_MOST],
        "agent": agent,
        "segments": tx.agents.segments(id, agent)[-_MOST:] if agent else (),
        "imports": tx.imports.list(id),
        "subagents": tx.subagents.list(id),
        "raw": raw[:_MOST],
        "more_raw": len(raw) - _MOST,
        "findings": others[:_MOST],
        "more_findings": len(others) - _MOST,
        "not_audited": not_audited,
        "refresh": point.run.status == RunStatus.RUNNING and not first,
    }


def _first(visit: Visit, number: int) -> int:
    """The place of the first statement that is shown. Raises InvalidValue."""
    given = visit.text("from")
    if given is None:
        return 0
    if not given.isascii() or not given.isdigit() or int(given[:10]) > number:
        raise InvalidValue("from", f"expected a whole number up to {number:,}.")
    return int(given)


def _audited(visit: Visit, id: str) -> tuple[Sequence[Any], str | None]:
    """What the audit finds, or why it finds nothing: a role that only looks may not see all that it compares."""
    try:
        return visit.tx.programs.runs.audit(id), None
    except PersistError as error:
        return (), str(error)


def _stretches(walked: Sequence[tuple[ProgramExecution, int]]) -> Iterator[Stretch]:
    """The statements of a time line."""
    for one, _ in walked:
        if one.started_at is not None:
            text = " ".join((one.statement_text or f"statement {one.id}")[:200].split())
            status = str(one.status or "unknown")
            ends = one.completed_at if one.completed_at is None else max(one.completed_at, one.started_at)
            yield Stretch(text, status, one.started_at, ends, f"{text}: {status}")


# -- values


def _scopes(
    shown: Sequence[Binding], executions: Sequence[ProgramExecution], every: Sequence[Binding]
) -> list[tuple[ProgramExecution | None, int | None, list[tuple[Binding, int | None, bool, int]]]]:
    """Values by the frame they are of, the root first: each with the frame whose value it shadows, and how many shadow it."""
    parents = {one.id: one.parent_id for one in executions}
    known = {(one.execution_id, one.name) for one in every}
    hides = {(one.execution_id, one.name): _shadowed(one, parents, known) for one in every}
    hidden: dict[tuple[int | None, str], int] = {}
    for (_, name), (frame, is_there) in hides.items():
        if is_there:
            hidden[frame, name] = hidden.get((frame, name), 0) + 1
    by_frame: dict[int | None, list[tuple[Binding, int | None, bool, int]]] = {}
    for one in shown:
        key = (one.execution_id, one.name)
        by_frame.setdefault(one.execution_id, []).append((one, *hides[key], hidden.get(key, 0)))
    frames = {one.id: one for one in executions}
    order: list[int | None] = [None, *frames, *(frame for frame in by_frame if frame is not None and frame not in frames)]
    return [(None if frame is None else frames.get(frame), frame, by_frame[frame]) for frame in order if frame in by_frame]


def _shadowed(one: Binding, parents: Mapping[int, int | None], known: set[tuple[int | None, str]]) -> tuple[int | None, bool]:
    """The frame of the value that a value hides, and whether there is one: the nearest caller's, else the root's."""
    if one.execution_id is None:
        return None, False
    seen, frame = {one.execution_id}, parents.get(one.execution_id)
    while frame is not None and frame not in seen:
        if (frame, one.name) in known:
            return frame, True
        seen.add(frame)
        frame = parents.get(frame)
    return None, (None, one.name) in known


def _frame(visit: Visit) -> int | None:
    """The frame that is asked for. Raises InvalidValue."""
    given = visit.text("frame")
    if given is not None and not (given.isascii() and given.isdigit() and len(given) < 19):
        raise InvalidValue("frame", "expected the number of an execution.")
    return None if given is None else int(given)


def _value(visit: Visit) -> dict[str, Any]:
    tx, id, name, frame = visit.tx.programs, visit.values["id"], visit.values["name"], _frame(visit)
    run, found = tx.runs.get(id), tx.bindings.get(id, name, execution_id=frame)
    most, read, refusal = _WHOLE if visit.flag("whole") else TEXT_AT_FIRST, b"", None
    try:
        with tx.bindings.open_file(id, name, execution_id=frame) as stream:
            read = stream.read(4 * most + 1)
    except PersistError as error:  # its file is gone, or is no file of the run
        if found is None:
            raise
        refusal = str(error)
    text = read.decode("utf-8", "replace")
    return {
        "title": name,
        "run": run,
        "frame": frame,
        "found": found,
        "refusal": refusal,
        "text": text[:most],
        "is_text": b"\0" not in read[:8192],
        "more": len(text) > most,
        "may_have_more": most < _WHOLE,
    }


def _whole_value(visit: Visit) -> Answer:
    return value_of(visit.tx, visit.values["id"], visit.values["name"], _frame(visit))


SECTION = Section(
    "Programs",
    "/programs",
    views=(
        View(
            "/programs",
            "programs.html",
            _list,
            lambda visit: RUNS.page(visit.tx.programs.runs.list(**_wanted(visit), **visit.page(20))),
        ),
        View("/programs/{id}", "program.html", _show, lambda visit: run_of(visit.tx, visit.values["id"])),
        View("/programs/{id}/values/{name}", "program_value.html", _value, _whole_value),
    ),
)
