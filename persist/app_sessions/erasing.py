"""Erasing application sessions: what a user, or one session, has: sessions, state, artifacts and memories."""

from collections.abc import Sequence

from sqlalchemy import select

from persist.app_sessions.models import BELOW, artifact_blobs, artifact_versions, artifacts, memories, sessions, user_state
from persist.db.operations.erasing import OWNER, SESSION, USER, Erasable, ErasableRows, followed, holding
from persist.db.operations.erasing_ways import Key, Lead, equal
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable

_S, _A, _M, _U = sessions.c, artifacts.c, memories.c, user_state.c


class _Artifacts(ErasableRows):
    def also(self, work: UnitOfWork, keys: Sequence[Key]) -> dict[str, list[Key]]:
        ids = [id for (id,) in keys]
        query = select(artifact_blobs.c.sha256).where(artifact_blobs.c.artifact_id.in_(ids)).distinct()
        return {"blobs": [tuple(row) for row in work.found(query, unreadable=OnUnreadable.LEAVE_OUT)]}


ERASABLES: tuple[Erasable, ...] = (
    ErasableRows(
        sessions,
        ("id",),
        {OWNER: equal(_S.user_id), USER: equal(_S.user_id), SESSION: equal(_S.id, _S.session_id)},
        [holding(table, "app_session_id") for table in BELOW],
        leading=(Lead((_S.id,), followed, (_S.session_id,)),),
    ),
    _Artifacts(
        artifacts,
        ("id",),
        {OWNER: equal(_A.user_id), USER: equal(_A.user_id), SESSION: equal(_A.session_id)},
        [holding(artifact_blobs, "artifact_id"), holding(artifact_versions, "artifact_id")],
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
)
