"""What every verb of a domain may make of a cell that is spoilt, and which verbs make more of it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sqlalchemy import Table, func, select

from persist import Store
from persist.db.schema.row_guards import GUARDS
from persist.errors import NotFound
from persist.telemetry.usage import FIGURES
from persist.testing import FrozenClock
from tests.statemachines.both_databases import alike
from tests.statemachines.scene import Verb, make, verbs
from tests.statemachines.single_call import work_of
from tests.unreadable.cells import Attempt, Cell, cells, refused_cells, spoilt_beforehand, tables

DOMAINS = sorted({verb.domain for verb in verbs()})

SWEEPS = frozenset(
    {
        *("checkpoints.memories.sweep", "checkpoints.threads.delete", "conversations.exchange.send"),
        *("conversations.sessions.delete", "events.trim", "messaging.messages.add", "messaging.sessions.get_or_create"),
        *("programs.bindings.bind", "programs.runs.finish", "telemetry.links.upsert", "telemetry.status.record"),
        *("telemetry.tags.record", "telemetry.tools.record", "telemetry.usage.sample"),
        *(f"chat.messages.{verb}" for verb in ("append", "claim_queued", "enqueue")),
        *(f"chat.sessions.{verb}" for verb in ("archive", "delete")),
        *(f"telemetry.tasks.{verb}" for verb in ("claim", "poll")),
        *(f"workflows.executions.{verb}" for verb in ("finish", "mark_stale")),
        *(
            f"workflows.runs.{verb}"
            for verb in ("admit", "cancel", "claim", "expire_queued", "finish", "recover_interrupted", "requeue")
        ),
    }
)
"""Verbs that write, and that no cell of a row may stop unless they are about that very cell."""

NEEDED: Mapping[str, set[str]] = {
    "chat.messages.append": {"chat_messages.created_at"},
    "chat.messages.enqueue": {"chat_messages.created_at"},
    "chat.messages.list": {"chat_messages.created_at", "chat_messages.session_id"},
    "conversations.branches.history": {"branches.forked_at_ord", "branches.parent_branch_id"},
    "conversations.exchange.send": {"sessions.progression_id"},
    "conversations.vectors.search": {"sessions.progression_id"},
    "events.consumers.list": {"event_heads.seq", "event_heads.settled"},
    "events.trim": {"event_heads.seq", "event_heads.first_seq"},
    "histories.entries.list": {f"history_entries.{column}" for column in ("root_id", "line_id", "depth")},
    "programs.runs.finish": {"run.status"},
    "telemetry.tags.record": {"agent_tags.first_seen", "agent_tags.last_seen"},
    "telemetry.status.record": {"window_marks.inserted"},
    "telemetry.tools.record": {"window_marks.inserted"},
    "telemetry.usage.sample": {f"usage_samples.{figure}" for figure in FIGURES},
    "usage.budgets.standings": {f"usage_spending.{figure}" for figure in ("cost_usd_micros", "tokens", "passed")},
    "workflows.executions.finish": {"executions.workflow_run_id"},
    "workflows.executions.for_run": {"workflow_runs.workflow_name", "workflow_runs.trigger_id"},
    **{
        f"workflows.runs.{verb}": {"workflow_runs.status", "workflow_runs.lease_owner", "workflow_runs.lease_expires_at"}
        for verb in ("admit", "cancel", "expire_queued", "finish", "requeue")
    },
}
"""The cells that a list or a sweep asks for by name: the place to begin at, the order to keep, the status to end."""


OF_ONE = frozenset({"chat.messages.replay"})
"""Verbs that return a list which is about one row: they may refuse a row that says something else than they need."""


def filled(url: str, clock: FrozenClock) -> tuple[Store, Mapping[str, Any]]:
    """A store of the scene, and its ids."""
    with Store.open(url, clock=clock) as store:
        alike(store)
        ids = make(store)
        store.switch_events(False)
    return Store.open(url, clock=clock), ids


def _wrong(verb: Verb, cell: Cell, attempt: Attempt, valid: Attempt) -> str | None:
    """What a caller of the verb would have to complain of."""
    error, name = attempt.error, f"{cell.table.name}.{cell.column}"
    if attempt.is_bare:
        return f"a bare {type(error).__name__}: {error}"
    if valid.error is not None or verb.name in OF_ONE or (valid.size is None and verb.name not in SWEEPS):
        return None  # a verb about one row, which may refuse
    if error is not None:
        asked_for = cell.is_key or name in NEEDED.get(verb.name, ())
        return None if asked_for or isinstance(error, NotFound) else f"{type(error).__name__}: {error}"
    if cell.value == "NULL" and name in NEEDED.get(verb.name, ()):
        return None  # what is found by it is not found
    fewer = valid.size is not None and (attempt.size or 0) < valid.size - 1 and not cell.is_shared
    return f"{attempt.size} of {valid.size} are left" if fewer else None


def problems(
    store: Store, ids: Mapping[str, Any], domain: str, *, lite: bool, wanted: Callable[[Table], Iterable[Cell]] | None = None
) -> Iterator[str]:
    """Each verb of the domain over each cell of its tables that stops more than it may. `wanted`: other cells than `cells`."""
    of_domain = [verb for verb in verbs() if verb.domain == domain]
    valid = {verb.name: Attempt(store, verb, ids, None) for verb in of_domain}
    assert any(attempt.statements for attempt in valid.values()) == lite
    if not lite:  # each statement takes a round trip, and the verbs that are about one row are the same
        of_domain = [verb for verb in of_domain if verb.name in SWEEPS or valid[verb.name].size is not None]
    for table in tables(domain):
        # No cell of a table that a verb never names matters to it; only what it deletes may take rows along by their keys.
        near = [verb for verb in of_domain if not lite or verb.name in SWEEPS or valid[verb.name].asks(table)]
        sweeps = [verb for verb in near if verb.name in SWEEPS]
        tried = [(cell, near) for cell in (cells(table, lite=lite) if wanted is None else wanted(table))]
        if lite and sweeps and wanted is None:
            tried += [(cell, sweeps) for cell in refused_cells(table, _rows(store, table))]
        for cell, of_cell in tried:
            with _spoilt_for_all(store, cell, lite=lite) as left:
                for verb in of_cell:
                    attempt = Attempt(store, verb, ids, left)
                    if not attempt.applies:
                        break
                    if wrong := _wrong(verb, cell, attempt, valid[verb.name]):
                        yield f"{verb.name} over {cell}: {wrong}"


def _rows(store: Store, table: Table) -> int:
    with store.begin() as tx:
        return int(work_of(tx).select(select(func.count()).select_from(table)).scalar_one())


def _spoilt_for_all(store: Store, cell: Cell, *, lite: bool) -> AbstractContextManager[Cell | None]:
    """The cell that each verb of the block spoils in its own transaction; None where it is spoilt for all of them."""
    if not lite or GUARDS not in cell.table.info:
        return nullcontext(cell)
    path = store.runtime.dialect.path
    assert path is not None
    return spoilt_beforehand(path, cell)
