"""Instances of agents: statuses over time, what they used in the window, tools, tags and links; tasks of a workspace."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from persist.cli.nouns import Answer
from persist.cli.output import shortened
from persist.cli.telemetry import telemetry
from persist.errors import InvalidValue, NotFound
from persist.telemetry.schemas import StatusEntry, TaskState, UsageTotals
from persist.telemetry.standings import used_by_piece, workspaces_with_tasks
from persist.ui.charts import Bar, Stretch
from persist.ui.rendering import count, micros, span
from persist.ui.views import ROWS, Section, View, Visit

_MINUTE = timedelta(minutes=1)
_RANGES = {
    "6h": ("6 hours", 24, 15 * _MINUTE),
    "24h": ("24 hours", 24, 60 * _MINUTE),
    "7d": ("7 days", 28, 6 * 60 * _MINUTE),
    "30d": ("30 days", 30, 24 * 60 * _MINUTE),
}
"""What plots may be of: in words, how many bars, and how long each is."""
_STATUSES = 500
"""How many changes of its status a strip shows."""
_MOST = 200
"""How many tags and links a page has."""
_WORKSPACES = 30
"""How many workspaces with tasks are named."""


# -- all instances


def _list(visit: Visit) -> dict[str, Any]:
    page = visit.page()
    found = visit.tx.telemetry.status.latest(limit=page["limit"] + 1, before=page["after"])
    shown = found[: page["limit"]]
    return {
        "title": "Telemetry",
        "entries": [(one, _told(one.metadata)) for one in shown],
        "cursor": shown[-1].instance_id if len(found) > len(shown) else None,
        **_tasks(visit),
        "refresh": page["after"] is None,
    }


def _told(metadata: Any) -> str:
    """What was said with a status, on one line."""
    try:
        return "" if metadata is None else shortened(metadata, 120)
    except RecursionError:
        return "too deep to be shown here"


def _tasks(visit: Visit) -> dict[str, Any]:
    """The tasks of a workspace that is named, else of that of the file, else of the first one that has any."""
    named, state, after = visit.text("workspace"), visit.one_of("state", TaskState), visit.text("tasks_after")
    others = visit.ask(workspaces_with_tasks, _WORKSPACES)
    tasks = partial(visit.tx.telemetry.tasks.list, state=state, limit=ROWS)
    shown = {"workspaces": others, "states": [str(state) for state in TaskState]}
    if named is None and visit.store.runtime.dialect.one_file and ((own := tasks(after=after)) or not others):
        return {**shown, "workspace": None, "tasks": own}
    workspace = named or next(iter(others), None)
    return {**shown, "workspace": workspace, "tasks": [] if workspace is None else tasks(workspace_id=workspace, after=after)}


def _json_list(visit: Visit) -> Answer:
    page = visit.page(20)
    return telemetry.answer("ls", visit.tx, limit=page["limit"], before=page["after"])


# -- one instance


def _instance(visit: Visit) -> str | None:
    """The instance of the address; the one without a name owns the file."""
    return visit.values["instance"] or None


def _calls_wanted(visit: Visit) -> dict[str, Any]:
    return {"tool_key": visit.text("tool"), "failures_only": visit.flag("failures")}


def _before(visit: Visit) -> int | None:
    """The call of a tool before which one looks. Raises InvalidValue."""
    given = visit.text("before")
    if given is not None and not (given.isascii() and given.isdigit() and len(given) < 19):
        raise InvalidValue("before", "expected the number of a call.")
    return None if given is None else int(given)


def _show(visit: Visit) -> dict[str, Any]:
    tx, id, name = visit.tx.telemetry, _instance(visit), visit.values["instance"]
    chosen = visit.one_of("range", tuple(_RANGES)) or "24h"
    entries = tx.status.history(limit=_STATUSES, instance_id=id)
    kept = tx.usage.totals(instance_id=id)
    tags, links = tx.tags.list(instance_id=id), tx.links.list(instance_id=id)
    tools = tx.tools.last(ROWS + 1, before=_before(visit), **_calls_wanted(visit), instance_id=id)
    calls = visit.tx.usage.calls.list(instance_id=id, limit=20)
    seen = entries or kept.samples or tags or links or tools or calls.items or any(_calls_wanted(visit).values())
    if not seen and visit.query.get("before") is None:
        raise NotFound("instance", name)
    stretches, covered = _statuses(entries, visit.now, visit.now - _length(chosen))
    return {
        "title": name or "The instance of this file",
        "instance": name,
        "current": entries[-1] if entries else None,
        "ranges": [(key, words) for key, (words, _, _) in _RANGES.items()],
        "chosen": chosen,
        "stretches": stretches,
        "lasted": sorted(covered.items(), key=lambda one: -one[1]),
        "entries": entries[:-21:-1],
        "today": tx.usage.today(instance_id=id),
        "kept": kept,
        **_plots(visit, id, chosen, kept),
        "tags": tags[:_MOST],
        "more_tags": len(tags) - _MOST,
        "links": links[:_MOST],
        "more_links": len(links) - _MOST,
        "tools": tools[:ROWS],
        "earlier": tools[ROWS - 1].id if len(tools) > ROWS else None,
        "calls": calls.items,
        "refresh": visit.query.get("before") is None,
    }


def _length(chosen: str) -> timedelta:
    _, number, each = _RANGES[chosen]
    return number * each


def _statuses(entries: Sequence[StatusEntry], now: datetime, since: datetime) -> tuple[list[Stretch], dict[str, float]]:
    """What a strip shows from `since` on, and how many seconds each status lasted in it."""
    stretches, lasted = list[Stretch](), dict[str, float]()
    ends = [*(one.occurred_at for one in entries[1:]), now]
    for entry, after in zip(entries, ends, strict=False):  # without any entry nothing ends now
        start, end = max(entry.occurred_at, since), min(after, now)
        if end > start or (end == start == now):  # a clock that was set back makes one that lasted for no time
            length = (end - start).total_seconds()
            lasted[entry.new_status] = lasted.get(entry.new_status, 0.0) + length
            stretches.append(Stretch(entry.new_status, entry.new_status, start, end, f"{entry.new_status}, {span(length)}"))
    return stretches, lasted


def _plots(visit: Visit, id: str | None, chosen: str, kept: UsageTotals) -> dict[str, list[Bar] | None]:
    """Bars of the samples of a range, each a sum over its piece of it. Without any sample there is nothing to add up."""
    if not kept.samples:
        return {"tokens": None, "costs": None}
    _, number, each = _RANGES[chosen]
    end = datetime.fromtimestamp((visit.now.timestamp() // each.total_seconds() + 1) * each.total_seconds(), UTC)
    starts = [end - (number - place) * each for place in range(number)]
    used = visit.ask(used_by_piece, id, starts[0], end, number)
    label = "%m-%d" if each >= timedelta(days=1) else "%a %H:%M" if each > timedelta(hours=1) else "%H:%M"
    labels = [(at.strftime(label), f"from {at:%Y-%m-%d %H:%M} UTC") for at in starts]
    pieces = list(zip(labels, used, strict=True))
    return {
        "tokens": [Bar(short, one.tokens, f"{long}: {count(one.tokens)} tokens") for (short, long), one in pieces],
        "costs": [Bar(short, one.cost_usd_micros, f"{long}: {micros(one.cost_usd_micros)}") for (short, long), one in pieces]
        if any(one.cost_usd_micros for one in used)
        else None,
    }


def _json(visit: Visit) -> Answer:
    """What the commands `status`, `usage`, `tools` and `links` answer of the instance, each under its name."""
    id = {"instance_id": _instance(visit)}
    asked: dict[str, dict[str, Any]] = {
        "status": {"limit": 20},
        "usage": {},
        "tools": {"limit": 20, **_calls_wanted(visit)},
        "links": {"due": visit.flag("due")},
    }
    return Answer({name: telemetry.answer(name, visit.tx, **id, **options).json for name, options in asked.items()})


SECTION = Section(
    "Telemetry",
    "/telemetry",
    views=(View("/telemetry", "telemetry.html", _list, _json_list), View("/telemetry/{instance}", "instance.html", _show, _json)),
)
