"""Pruning of transcripts: sessions to which nothing was appended for long, with all their parts."""

from persist.db.operations.bounded_deletion import Below
from persist.db.operations.pruning import AgedRows, Pruning
from persist.transcripts.models import entries, transcripts

TRANSCRIPTS = AgedRows(
    transcripts,
    transcripts.c.updated_at,
    transcripts.c.id,
    below=(Below(entries, lambda ids: entries.c.transcript_id.in_(ids)),),
)

PRUNINGS: tuple[Pruning, ...] = (TRANSCRIPTS,)
