"""Merging a stream's metadata into a stored message: it is read anew, since other writers may have added keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Text, cast, select

from persist.chat.models import messages
from persist.chat.recording.pending import Patch, patched, without_usage
from persist.chat.schemas import Role
from persist.chat.storage import usage
from persist.chat.storage.stored_json import stored_object
from persist.db.changes.batch import Batch, Pending, RequirementMissed
from persist.db.changes.driver_statements import StatementRunner
from persist.db.statements.prepared import Row, Statement, param

_M = messages.c
_METADATA = Statement(select(cast(_M.metadata_json, Text)).where(_M.id == param("row_id")).with_for_update())
_COUNTED = ("usage", "hidden_at", "queued_at")
"""Keys of a message's metadata on which the session's counters depend."""


@dataclass(slots=True)
class Merge:
    """One message's stored metadata, asked for in a batch, and what becomes of it."""

    id: str
    stored: Pending[Row | None]
    steps: Pending[Row | None] | None
    boundary: Pending[Row | None] | None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    added: Mapping[str, int] = field(default_factory=dict)
    """What to add to the session's counters."""
    compacted: bool = False
    """Whether the message is before the latest compaction, so that the counters are computed anew."""

    @classmethod
    def ask(cls, batch: Batch, id: str, patches: Sequence[Patch]) -> "Merge":
        """Add the statements to a batch. They lock the message, and the session if its counters may change."""
        stored = batch.row(_METADATA, row_id=id)
        counts = any(key in patch.payload for patch in patches for key in _COUNTED)
        if not counts:
            return cls(id, stored, None, None)
        batch.lock(usage.LOCK_OWN_SESSION, row_id=id)
        return cls(id, stored, batch.row(usage.HAS_STEPS, row_id=id), usage.boundary_of(batch, id))

    def apply(self, db: StatementRunner, patches: Sequence[Patch], owned: Mapping[str, Any]) -> None:
        """Merge into the stored metadata that was read. Raises RequirementMissed if the message is gone."""
        if self.stored.result is None:
            raise RequirementMissed
        if self.steps is not None and self.steps.result is not None:
            patches = without_usage(patches)
        stored = stored_object(db, self.stored.result[0], f"the metadata of message {self.id}")
        self.metadata = patched(stored, patches, owned)
        self.added = usage.counters_of(Role.ASSISTANT, stored, self.metadata)
        if self.added and self.boundary is not None:
            self.compacted = usage.is_before(self.id, self.boundary.result)
