"""Values of transcripts."""

from datetime import datetime
from typing import Any

from persist.db.values.frozen import Value


class Transcript(Value):
    """A row of transcript_sessions: a session of a project, with its main part and the parts of its subagents."""

    id: str
    project: str
    session_id: str
    created_at: datetime
    updated_at: datetime
    """When an entry of any part was last appended."""
    main_at: datetime | None
    """When an entry of the main part was last appended; None if it has none. It never goes back, whatever the clock does."""
    length: int
    """How many entries were ever appended, in all parts."""
    summary: Any
    """What `append` folded from every entry of the main part; None if some were appended without a fold."""
