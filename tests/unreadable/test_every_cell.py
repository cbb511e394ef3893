"""Every cell of every table, spoilt one at a time, under every verb of its domain."""

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, func, select

from persist import Store
from persist.db.schema.row_guards import GUARDS
from persist.errors import NotFound
from persist.maintenance import maintain, prune
from persist.maintenance.pruning import PRUNINGS
from persist.telemetry.usage import FIGURES
from persist.testing import FrozenClock
from tests.statemachines.both_databases import alike
from tests.statemachines.scene import Verb, make, verbs
from tests.statemachines.single_call import work_of
from tests.unreadable.cells import Attempt, Cell, cells, refused_cells, spoil_row, spoilt_beforehand, tables

DOMAINS = sorted({verb.domain for verb in verbs()})

SWEEPS = frozenset(
    {
        "chat.messages.append",
        "chat.messages.claim_queued",
        "chat.messages.enqueue",
        "chat.sessions.archive",
        "chat.sessions.delete",
        "checkpoints.memories.sweep",
        "checkpoints.threads.delete",
        "conversations.exchange.send",
        "conversations.sessions.delete",
        "events.trim",
        "messaging.messages.add",
        "messaging.sessions.get_or_create",
        "programs.bindings.bind",
        "programs.runs.finish",
        "telemetry.links.upsert",
        "telemetry.status.record",
        "telemetry.tags.record",
        "telemetry.tasks.claim",
        "telemetry.tasks.poll",
        "telemetry.tools.record",
        "telemetry.usage.sample",
        "workflows.executions.finish",
        "workflows.executions.mark_stale",
        "workflows.runs.admit",
        "workflows.runs.cancel",
        "workflows.runs.claim",
        "workflows.runs.expire_queued",
        "workflows.runs.finish",
        "workflows.runs.recover_interrupted",
        "workflows.runs.requeue",
    }
)
"""Verbs that write, and that no cell of a row may stop unless they are about that very cell."""

NEEDED: Mapping[str, set[str]] = {
    "chat.messages.append": {"chat_messages.created_at"},
    "chat.messages.enqueue": {"chat_messages.created_at"},
    "chat.messages.list": {"chat_messages.created_at", "chat_messages.session_id"},
    "conversations.branches.history": {"branches.forked_at_ord"},
    "conversations.exchange.send": {"sessions.progression_id"},
    "conversations.vectors.search": {"sessions.progression_id"},
    "events.consumers.list": {"event_heads.seq", "event_heads.settled"},
    "events.trim": {"event_heads.seq", "event_heads.first_seq"},
    "histories.entries.list": {f"history_entries.{column}" for column in ("root_id", "line_id", "depth")},
    "programs.runs.finish": {"run.status"},
    "telemetry.tags.record": {"agent_tags.first_seen", "agent_tags.last_seen"},
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


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="persist")


def _scene(url: str, clock: FrozenClock) -> tuple[Store, Mapping[str, Any]]:
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
    fewer = valid.size is not None and (attempt.size or 0) < valid.size - 1 and not cell.is_shared
    return f"{attempt.size} of {valid.size} are left" if fewer else None


def _problems(store: Store, ids: Mapping[str, Any], domain: str, *, lite: bool) -> Iterator[str]:
    of_domain = [verb for verb in verbs() if verb.domain == domain]
    valid = {verb.name: Attempt(store, verb, ids, None) for verb in of_domain}
    assert any(attempt.statements for attempt in valid.values()) == lite
    if not lite:  # each statement takes a round trip, and the verbs that are about one row are the same
        of_domain = [verb for verb in of_domain if verb.name in SWEEPS or valid[verb.name].size is not None]
    for table in tables(domain):
        # No cell of a table that a verb never names matters to it; only what it deletes may take rows along by their keys.
        near = [verb for verb in of_domain if not lite or verb.name in SWEEPS or valid[verb.name].asks(table)]
        sweeps = [verb for verb in near if verb.name in SWEEPS]
        tried = [(cell, near) for cell in cells(table, lite=lite)]
        if lite and sweeps:
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


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, Any]]:
    """The file that every test of files copies, and its ids."""
    path = tmp_path_factory.mktemp("scene") / "scene.db"
    store, ids = _scene(f"sqlite:///{path.as_posix()}", FrozenClock())
    store.close()
    return path, ids


@pytest.mark.parametrize("domain", DOMAINS)
def test_no_cell_stops_more_than_its_row(
    domain: str, scene: tuple[Path, Mapping[str, Any]], tmp_path: Path, clock: FrozenClock, quiet: None
) -> None:
    path, ids = tmp_path / "state.db", scene[1]
    shutil.copyfile(scene[0], path)
    with Store.open(f"sqlite:///{path.as_posix()}", clock=clock) as store:
        assert (problems := "\n".join(_problems(store, ids, domain, lite=True))) == "", problems


def test_no_cell_stops_more_while_statements_are_watched(
    scene: tuple[Path, Mapping[str, Any]], tmp_path: Path, clock: FrozenClock, caplog: pytest.LogCaptureFixture, quiet: None
) -> None:
    caplog.set_level(logging.DEBUG, logger="persist.statements")
    path, ids = tmp_path / "state.db", scene[1]
    shutil.copyfile(scene[0], path)
    with Store.open(f"sqlite:///{path.as_posix()}", clock=clock) as store:
        assert list(_problems(store, ids, "usage", lite=True)) == []
    assert any(record.name == "persist.statements" for record in caplog.records)


def test_no_cell_of_a_server_stops_more_than_its_row(postgres_url: str, clock: FrozenClock, quiet: None) -> None:
    store, ids = _scene(postgres_url, clock)
    with store:
        assert [problem for domain in DOMAINS for problem in _problems(store, ids, domain, lite=False)] == []


def test_sweeps_are_verbs() -> None:
    assert {verb.name for verb in verbs()} >= SWEEPS | set(NEEDED)


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_file_with_a_row_that_is_all_spoilt_opens_and_is_swept(
    domain: str, scene: tuple[Path, Mapping[str, Any]], clock: FrozenClock, tmp_path: Path, quiet: None
) -> None:
    clock.advance(delta=timedelta(days=40))
    for table in tables(domain):
        with _spoilt(scene[0], tmp_path / f"{table.name}.db", [table], clock) as store:
            assert [step for step in maintain(store).steps if step.error] == []
            for kind in PRUNINGS:  # a table's own pruning is one of its domain's
                prune(store, kind, older_than=timedelta(days=30))
    with _spoilt(scene[0], tmp_path / "all.db", tables(domain), clock) as store:
        for kind in PRUNINGS:  # a trial is the same on a copy of the file, and a copy takes long
            prune(store, kind, older_than=timedelta(days=30), dry_run=True)


def _spoilt(scene: Path, path: Path, of: Sequence[Table], clock: FrozenClock) -> Store:
    shutil.copyfile(scene, path)
    for table in of:
        spoil_row(path, table)
    return Store.open(f"sqlite:///{path.as_posix()}", clock=clock, sleep=lambda seconds: None)  # nobody waits for its lock
