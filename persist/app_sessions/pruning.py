"""Pruning of application sessions: those without a new event for long, files that no session has any more, and memories."""

from sqlalchemy import exists, or_

from persist.app_sessions.models import BELOW, artifact_blobs, artifact_versions, artifacts, memories, sessions
from persist.db.operations.bounded_deletion import Below
from persist.db.operations.pruning import AgedRows, Orphaned, Pruning

_S, _A, _M = sessions.c, artifacts.c, memories.c

SESSIONS = AgedRows(
    sessions,
    _S.updated_at,
    _S.id,
    below=[Below(table, lambda ids, table=table: table.c.app_session_id.in_(ids)) for table in BELOW],  # type: ignore[misc]  # a bound default
)

ARTIFACTS = AgedRows(
    artifacts,
    _A.updated_at,
    _A.id,
    orphaned=Orphaned(
        SESSIONS,
        lambda among: (
            ~exists().where(
                _S.app_name == _A.app_name,
                _S.user_id == _A.user_id,
                or_(_A.session_id == "", _A.session_id == _S.session_id),
                among,
            )
        ),
    ),
    below=[
        Below(artifact_blobs, lambda ids: artifact_blobs.c.artifact_id.in_(ids)),
        Below(artifact_versions, lambda ids: artifact_versions.c.artifact_id.in_(ids)),
    ],
)
"""Artifacts of a session that is there stay at any age, and so do those of a user who has a session."""

MEMORIES = AgedRows(memories, _M.updated_at, _M.app_name, _M.user_id, _M.session_id, _M.id)

PRUNINGS: tuple[Pruning, ...] = (SESSIONS, ARTIFACTS, MEMORIES)
