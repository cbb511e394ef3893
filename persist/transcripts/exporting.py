"""What an export of a transcript contains."""

from persist.db.operations.exporting import Exported, Rows, the_id
from persist.transcripts.models import entries, transcripts

TRANSCRIPT = Exported(
    "transcript",
    transcripts.c.id,
    (
        Rows(transcripts, transcripts.c.id == the_id(), (transcripts.c.id,)),
        Rows(entries, entries.c.transcript_id == the_id(), tuple(entries.primary_key.columns)),
    ),
    also=transcripts.c.session_id,
)
"""An export of the transcript of one session with all its parts."""
