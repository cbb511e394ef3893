"""The store's health: what doctor finds and what to do about it, sizes and rows, the write-ahead log, what is in quarantine."""

import platform
from collections import Counter
from dataclasses import asdict
from threading import Lock
from typing import Any

from persist import __version__
from persist.cli.doctor import in_quarantine
from persist.cli.nouns import Answer
from persist.db.dialects.interface import Severity
from persist.db.transactions.verb_frame import Verb
from persist.errors import Conflict, StoreBusy
from persist.events.repository import log_status
from persist.maintenance.checkups import Finding, doctor
from persist.maintenance.describing import facts_in, tables_in
from persist.maintenance.quarantine import Quarantined, row_in_quarantine, rows_in_quarantine
from persist.store.transaction import work_of
from persist.ui.views import Section, View, Visit

_SMALL = 16_000_000
"""How many bytes a store has at most that is examined and counted without being asked."""
_SECONDS = 5.0
"""How long doctor may look for a page."""
_EXAMINING = Lock()
"""One doctor at a time: each reads every row."""
_MEND = "persist doctor --fix mends it, and deletes no data."
_GROUPS = {
    "Restore a backup: the file is damaged, and nothing else was looked at.": "corrupt",
    "Run persist upgrade.": "schema_outdated",
    "Run persist adopt: another program made this file.": "unmanaged",
    "Upgrade persist: the database was written by a newer one.": "schema_newer schema_unknown",
    "Restore a backup: another program removed it.": "table_missing column_missing",
    _MEND: "version_marks index_missing sequence_behind positions_foreign turn_dead transcript_length tails_unfolded "
    "progressions_lagging branch_pointers call_number",
    "persist doctor --fix moves such rows into the quarantine, whole, from where they can be brought back.": "unreadable "
    "incomplete foreign_key",
    "Drop the index that differs, then run persist doctor --fix; other differences are for your database's administrator.": ""
    "index_changed column_changed constraint_changed constraint_missing",
    "Nothing has to be done: it belongs to a host, or to the program that made the file.": "column_unknown index_unknown "
    "constraint_unknown value_missing catalog_by_name",
    "Run the statement that it names.": "index_invalid identity_missing",
    "Set it as the page on operations says: docs/operations.md.": "setting",
    "End the reader that never ends, or restart it: it keeps the write-ahead log from being reset.": "wal_large",
    "Put the file on a local disk, and let every program open it with foreign keys and in WAL mode.": "foreign_keys_off not_wal "
    "network",
    "Recover it, resume it or cancel it: its page has what can be done.": "run_stuck run_paused run_joined",
    "Run a worker: nobody has asked for what is due.": "approval_overdue schedule_overdue",
    "Nobody has to answer: the run has ended.": "approval_moot",
    "Run persist events on.": "positions_behind",
    "Start the consumer, or forget it: persist consumers remove.": "consumer_behind",
    "Set the limit anew, or delete it.": "limit_shut",
    "Run persist conversations doctor.": "session_stale",
    "Resume the turn, or repair the session: tx.chat.messages.repair_interrupted.": "tool_call_orphaned",
    "Put the same bytes again with repair=True, or restore a backup.": "blob_damaged",
    "Name the place of the bodies in PERSIST_BLOBS.": "blobs_outside",
    "Run persist maintain.": "blobs_orphaned erasure_unfinished",
    "Run persist blobs databases: other databases use the place, too.": "blobs_kept",
    "Nothing has to be done: the row that was fetched last counts.": "link_repeated",
    "Nothing has to be done: it is shown as it is stored.": "file_unnamed tail_unreadable",
    "Nothing has to be done: the message is not sent again.": "replay_message",
    "Run persist doctor --fix, which removes what cannot be gone on from; then erase again.": "erasure_damaged",
    "Put the file of the attachment back, or set the binding anew.": "program_attachment_missing program_attachment_escapes",
    "Look at the run's statements: a raw writer left what does not belong to its tree.": "program_orphan program_circle",
    "Continue from a checkpoint that is not among its own ancestors, or delete the thread.": "checkpoint_circle",
    "The other histories can be read: store this one anew, or delete it.": "history_chain history_end",
    "Save the task again.": "task_pieces",
    "Run persist doctor itself: it takes the time that it needs.": "not_examined",
}
WHAT_TO_DO = {code: sentence for sentence, codes in _GROUPS.items() for code in codes.split()}
_OTHERWISE = "The page on maintenance says what the code means, and what to do: docs/maintenance.md."


def _examined(visit: Visit) -> list[Finding]:
    """What doctor finds in the time that a page has. Raises Conflict for a store in memory, StoreBusy while another page asks."""
    if visit.store.runtime.one_connection:
        raise Conflict("A store in memory has one connection, which this page holds: its own program can call doctor(store).")
    if not _EXAMINING.acquire(blocking=False):
        raise StoreBusy(0.0, "doctor is examining for another page; load this one again in a moment")
    try:
        return doctor(visit.store, seconds=_SECONDS)
    finally:
        _EXAMINING.release()


def _show(visit: Visit) -> dict[str, Any]:
    work = work_of(visit.tx)
    with Verb(work, "health", writes=False):
        facts = facts_in(work)
    small = (facts["bytes"] or 0) <= _SMALL
    findings, refused = list[Finding](), None
    looked = small or visit.flag("doctor")
    if looked:
        try:
            findings = _examined(visit)
        except (Conflict, StoreBusy) as error:
            refused = str(error)
    counted = small or visit.flag("tables")
    tables = {}
    if counted:
        with Verb(work, "health", writes=False):
            tables = tables_in(work)
    return {
        "title": "Health",
        "facts": facts,
        "place": facts.get("path") or facts.get("database") or "in memory",
        "versions": f"persist {__version__} on Python {platform.python_version()}",
        "log": asdict(log_status(work)) if counted else None,
        "findings": [(one, WHAT_TO_DO.get(one.code, _OTHERWISE)) for one in findings],
        "counts": Counter(one.severity.value for one in findings),
        "severities": [severity.value for severity in Severity],
        "looked": looked,
        "in_part": any(one.code == "not_examined" for one in findings),
        "refused": refused,
        "seconds": _SECONDS,
        "counted": counted,
        "tables": sorted(
            ((name, table) for name, table in tables.items() if table["rows"] or visit.flag("all")),
            key=lambda item: (-(item[1]["bytes"] or 0), -item[1]["rows"], item[0]),
        ),
        "empty": sum(not table["rows"] for table in tables.values()),
        "rows": sum(table["rows"] for table in tables.values()),
        "vacuums": any("dead_rows" in table for table in tables.values()),
        "aside": _quarantined(visit, 10),
    }


def _quarantined(visit: Visit, rows: int) -> list[Quarantined]:
    with Verb(work_of(visit.tx), "quarantined()", writes=False):
        return rows_in_quarantine(work_of(visit.tx), after=visit.text("after"), limit=rows)


def _set_aside(visit: Visit) -> dict[str, Any]:
    rows = visit.page()["limit"]
    found = _quarantined(visit, rows + 1)
    return {"title": "Quarantine", "aside": found[:rows], "cursor": found[rows - 1].id if len(found) > rows else None}


def _row(visit: Visit) -> Quarantined:
    with Verb(work_of(visit.tx), "quarantined_row()", writes=False):
        return row_in_quarantine(work_of(visit.tx), visit.values["id"])


def _one_aside(visit: Visit) -> dict[str, Any]:
    row = _row(visit)
    return {"title": f"{row.table} {row.key}", "row": row}


def _aside_json(visit: Visit) -> Answer:
    rows = visit.page()["limit"]
    return in_quarantine(_quarantined(visit, rows + 1), rows)


SECTION = Section(
    "Health",
    "/health",
    views=(
        View("/health", "health.html", _show, lambda visit: Answer({"items": _examined(visit), "cursor": None})),
        View("/health/quarantine", "quarantine.html", _set_aside, _aside_json),
        View("/health/quarantine/{id}", "set_aside.html", _one_aside, lambda visit: Answer(_row(visit))),
    ),
)
