"""Upkeep of application sessions. Artifacts of a session that exists, or of a user with one, stay at any age."""

from collections.abc import Sequence

from sqlalchemy import exists, or_, select

from persist.blobs.models import blobs, pieces
from persist.db.operations.erasing import OWNER, SESSION, USER, ErasableRows, Key, Lead, equal, followed
from persist.db.operations.pruning import AgedRows, Orphaned
from persist.db.operations.upkeep import Aggregate, Rows, Upkeep, aged, erasable, exported, parent_key, the_id
from persist.db.schema.base import json_text
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.framework_state.app_sessions.models import (
    app_state,
    artifact_blobs,
    artifact_versions,
    artifacts,
    events,
    memories,
    session_state,
    sessions,
    user_state,
)

_S, _A, _M, _U = sessions.c, artifacts.c, memories.c, user_state.c
_V, _B = artifact_versions.c, artifact_blobs.c
_USERS_SESSION = exists().where(_S.app_name == _A.app_name, _S.user_id == _A.user_id)


class _Artifacts(ErasableRows):
    def named_alone(self, work: UnitOfWork, keys: Sequence[Key]) -> dict[str, list[Key]]:
        query = select(_B.sha256).where(_B.artifact_id.in_([id for (id,) in keys])).distinct()
        return {"blobs": [tuple(row) for row in work.found(query, unreadable=OnUnreadable.LEAVE_OUT)]}


_sessions, _artifacts = Aggregate(sessions), Aggregate(artifacts, first=(artifact_blobs,))
SESSIONS = aged(_sessions, _S.updated_at)
_of_session = exists().where(
    _S.id == the_id(), _S.app_name == _A.app_name, _S.user_id == _A.user_id, _S.session_id == _A.session_id
)
_digests = select(_B.sha256).join(artifacts, _A.id == _B.artifact_id).where(_of_session)
_TEXTS = (events.c.data, session_state.c.value, app_state.c.value, user_state.c.value, memories.c.entry)
_OF_ARTIFACTS = (artifact_versions.c.metadata_text, artifact_versions.c.part)
UPKEEP = Upkeep(
    prunings=(
        SESSIONS,
        aged(
            _artifacts,
            _A.updated_at,
            orphaned=Orphaned(
                SESSIONS, lambda among: ~_USERS_SESSION.where(or_(_A.session_id == "", _A.session_id == _S.session_id), among)
            ),
        ),
        AgedRows(memories, _M.updated_at, _M.app_name, _M.user_id, _M.session_id, _M.id),
    ),
    erasables=(
        erasable(
            _sessions,
            {OWNER: equal(_S.user_id), USER: equal(_S.user_id), SESSION: equal(_S.id, _S.session_id)},
            leading=(Lead((_S.id,), followed, (_S.session_id,)),),
        ),
        erasable(
            _artifacts,
            {OWNER: equal(_A.user_id), USER: equal(_A.user_id), SESSION: equal(_A.session_id)},
            kind=_Artifacts,
            rooted=False,
        ),
        ErasableRows(
            user_state,
            ("app_name", "user_id"),
            {OWNER: equal(_U.user_id), USER: equal(_U.user_id)},
            own_streams=False,
            rooted=False,
        ),
        ErasableRows(
            memories,
            ("app_name", "user_id", "session_id"),
            {OWNER: equal(_M.user_id), USER: equal(_M.user_id), SESSION: equal(_M.session_id)},
            own_streams=False,
            rooted=False,
        ),
    ),
    exports=(
        exported(
            _sessions,
            "app session",
            before=(
                Rows(blobs, blobs.c.sha256.in_(_digests), (blobs.c.sha256,), shared=True),
                Rows(pieces, pieces.c.sha256.in_(_digests), (pieces.c.sha256, pieces.c.position), shared=True),
            ),
            after=(
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
        ),
    ),
    shapes=dict.fromkeys((*_TEXTS, *_OF_ARTIFACTS), json_text),
)
