"""What an export of an application's session contains."""

from sqlalchemy import exists, select

from persist.app_sessions.models import BELOW, artifact_blobs, artifact_versions, artifacts, sessions
from persist.blobs.models import blobs, pieces
from persist.db.operations.exporting import Exported, Rows, parent_key, the_id

_S, _A, _V, _B = sessions.c, artifacts.c, artifact_versions.c, artifact_blobs.c
_of_session = exists().where(
    _S.id == the_id(), _S.app_name == _A.app_name, _S.user_id == _A.user_id, _S.session_id == _A.session_id
)
_digests = select(_B.sha256).join(artifacts, _A.id == _B.artifact_id).where(_of_session)

SESSION = Exported(
    "app session",
    _S.id,
    (
        Rows(blobs, blobs.c.sha256.in_(_digests), (blobs.c.sha256,), shared=True),
        Rows(pieces, pieces.c.sha256.in_(_digests), (pieces.c.sha256, pieces.c.position), shared=True),
        Rows(sessions, _S.id == the_id(), (_S.id,)),
        *(Rows(table, table.c.app_session_id == the_id(), tuple(table.primary_key.columns)) for table in BELOW),
        Rows(
            artifacts,
            _of_session,
            (_A.id,),
            then=(
                Rows(artifact_versions, _V.artifact_id == parent_key(), (_V.version,)),
                Rows(artifact_blobs, _B.artifact_id == parent_key(), (_B.version,)),
            ),
        ),
    ),
)
"""An export of one session with its events, its own state and its artifacts. What other sessions share is not in it."""
