"""Transcripts from session logs, and back: the files of a session and its rows are the same entries."""

from persist.errors import NotFound
from persist.framework_state.transcripts.repository import Fold
from persist.sessionlog.session_files import METADATA, SessionFiles
from persist.store.transaction import Transaction


def store_session_files(tx: Transaction, session: SessionFiles, *, project: str | None = None, fold: Fold | None = None) -> int:
    """Append what the transcript of the session lacks; the number of new entries. Repeating it, it appends nothing.

    Entries that a mirror stored before count as there, with a uuid or without. `project`: the project to store it under, by
    default that of the files. `fold` as of `tx.transcripts.entries.append`.
    """
    key = (session.project_slug if project is None else project, session.session_id)
    transcripts, added = tx.transcripts, 0
    for subpath, entries in session.parts.items():
        lines = [entry for entry in entries if not subpath or entry.get("type") != METADATA]
        added += transcripts.entries.append(*key, lines, subpath=subpath, once=True, fold=fold)
        if len(lines) < len(entries):
            # the last one counts: one that equals an earlier one is appended after those in between
            stored = [entry for entry in transcripts.entries.list(*key, subpath=subpath) if entry.get("type") == METADATA]
            if stored[-1:] != entries[-1:]:
                added += transcripts.entries.append(*key, entries[-1:], subpath=subpath)
    return added


def session_files_of(tx: Transaction, project: str, session_id: str) -> SessionFiles:
    """The transcript of a session, to be written as files. Raises NotFound if it has no entries."""
    subpaths = tx.transcripts.sessions.subpaths(project, session_id)
    parts = {subpath: tx.transcripts.entries.list(project, session_id, subpath=subpath) for subpath in ("", *subpaths)}
    found = {subpath: entries for subpath, entries in parts.items() if entries}
    if not found:
        raise NotFound("transcript", session_id)
    return SessionFiles(project, session_id, found)
