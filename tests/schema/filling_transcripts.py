"""Something of every table of transcripts, made through the public API, and what a reader sees of it."""

from typing import Any

from persist import Store
from persist.store.transaction import Transaction

HARD = "Naïve\x00 text \ud83d stays what it was."


def fill_transcripts(store: Store) -> None:
    """A session with a subagent and a summary, and one of another project, which only a subagent wrote to."""
    entries: list[dict[str, Any]] = [
        {"type": "user", "uuid": "u1", "text": HARD},
        {"type": "title", "n": 10**30, "z": 1, "a": float("inf")},
    ]
    with store.begin() as tx:
        append = tx.transcripts.entries.append
        append("-home-you", "other", [{"type": "user", "uuid": HARD * 30}], subpath="subagents/agent-2")
        append("-home-me", "ses", entries, fold=lambda previous, new: {"count": len(new), "note": HARD})
        append("-home-me", "ses", [{"type": "user", "uuid": "u1"}], subpath="subagents/agent-1")


def transcripts_seen(tx: Transaction) -> dict[str, Any]:
    """What a reader sees, as JSON has it, by kind and id."""
    found = tx.transcripts.sessions.list().items
    parts = {
        (one.project, one.session_id, subpath)
        for one in found
        for subpath in ("", *tx.transcripts.sessions.subpaths(one.project, one.session_id))
    }
    return {
        "transcript_sessions": {one.id: one.model_dump(mode="json") for one in found},
        "transcript_entries": {
            "/".join(part): {"entries": tx.transcripts.entries.list(*part[:2], subpath=part[2])} for part in sorted(parts)
        },
    }
