"""What an export of an application's session contains."""

from sqlalchemy import exists

from persist.app_sessions.models import BELOW, artifact_versions, artifacts, sessions
from persist.db.operations.exporting import Exported, Rows, parent_key, the_id

_S, _A, _V = sessions.c, artifacts.c, artifact_versions.c

SESSION = Exported(
    "app session",
    _S.id,
    (
        Rows(sessions, _S.id == the_id(), (_S.id,)),
        *(Rows(table, table.c.app_session_id == the_id(), tuple(table.primary_key.columns)) for table in BELOW),
        Rows(
            artifacts,
            exists().where(
                _S.id == the_id(), _S.app_name == _A.app_name, _S.user_id == _A.user_id, _S.session_id == _A.session_id
            ),
            (_A.id,),
            then=(Rows(artifact_versions, _V.artifact_id == parent_key(), (_V.version,)),),
        ),
    ),
)
"""An export of one session with its events, its own state and its artifacts. What other sessions share is not in it."""
