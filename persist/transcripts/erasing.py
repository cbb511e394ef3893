"""Erasing transcripts: those of a session, in whatever project."""

from persist.db.operations.erasing import LOGS, SESSION, Erasable, ErasableRows, holding
from persist.db.operations.erasing_ways import equal
from persist.transcripts.models import entries, transcripts

ERASABLES: tuple[Erasable, ...] = (
    ErasableRows(
        transcripts,
        ("id",),
        {SESSION: equal(transcripts.c.id, transcripts.c.session_id), LOGS: equal(transcripts.c.session_id)},
        (holding(entries, "transcript_id"),),
    ),
)
