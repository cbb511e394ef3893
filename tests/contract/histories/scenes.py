"""What the tests of histories share: short ways to store conversations and snapshots."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from persist.framework_state.histories.schemas import Message, NewEntry
from persist.testing import START


def entry(id: str, parent_id: str | None) -> NewEntry:
    return NewEntry(id, parent_id, Message({"said": id}))


def chain(ids: str, behind: str | None = None) -> list[NewEntry]:
    """One entry for each letter, each behind the one before it."""
    parents = [behind, *ids]
    return [entry(id, parent) for id, parent in zip(ids, parents, strict=False)]


def put(
    tx: Any, id: str, revision: str, expected: str | None, head: str | None, entries: Sequence[NewEntry] = (), **more: Any
) -> None:
    given = {"updated_at": START, **more}
    tx.histories.records.put(id, revision=revision, expected_revision=expected, head_id=head, entries=entries, **given)


def said(tx: Any, head: str, **more: Any) -> str:
    """The ids of a history, joined."""
    return "".join(entry.id for entry in tx.histories.entries.list(head, **more))


def save(tx: Any, messages: str, number: int, *, state: str = "complete", run: str = "run", **more: Any) -> bool:
    """A snapshot of one message for each letter."""
    saved: bool = tx.histories.snapshots.save(
        run,
        [Message({"said": letter}) for letter in messages],
        state=state,
        step_index=number,
        taken_at=START + timedelta(seconds=number),
        **more,
    )
    return saved


def texts(tx: Any, run: str = "run", *, interrupted: bool = True) -> list[str]:
    """The messages of every snapshot, joined."""
    found = tx.histories.snapshots.list(run, include_interrupted=interrupted)
    return ["".join(entry.message["said"] for entry in one.entries) for one in found]
