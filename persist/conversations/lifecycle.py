"""The status of sessions and branches: what may follow what, and the row of history that every change leaves.

None or running may become anything; what has ended stays so, unless somebody takes the responsibility by name.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import insert, null, select, update

from persist.conversations.membership import fold
from persist.conversations.models import branches, sessions, transitions
from persist.conversations.schemas import Branch, ConvSession, Status, StatusTransition, TransitionSource
from persist.db.checks import check_word, optional_label
from persist.db.hot import Hot, Row, param
from persist.db.values import build
from persist.db.work import Work
from persist.errors import InvalidValue, TransitionError

_S, _B, _T = sessions.c, branches.c, transitions.c
TERMINAL = frozenset(Status) - {Status.RUNNING}
BY_ADMIN = frozenset({Status.FAILED, Status.ABORTED, Status.CANCELLED})

_FIELDS = tuple(StatusTransition.model_fields)
_NO_CODE = ""  # the published column is NOT NULL, in files that the original made
_LOG = Hot(insert(transitions))
_of_entity = (_T.entity_type == param("kind")) & (_T.entity_id == param("entity"))
_OF_ENTITY = Hot(select(*[_T[name] for name in _FIELDS]).where(_of_entity).order_by(_T.created_at, _T.id))
_LATEST = Hot(select(_T.created_at, _T.id).where(_of_entity).order_by(_T.created_at.desc(), _T.id.desc()).limit(1))
_SET_SESSION = Hot(
    update(sessions)
    .where(_S.id == param("row_id"))
    .values(
        status=param("to"),
        status_reason_code=null(),
        status_reason_summary=param("why"),
        status_evidence_refs=null(),
        ended_at=param("ended"),
        ended_at_is_approximate=param("approximate"),
        updated_at=param("at"),
    )
)
_SET_BRANCH = Hot(update(branches).where(_B.id == param("row_id")).values(status=param("to"), ended_at=param("ended")))


def set_session_status(
    work: Work,
    session: ConvSession,
    status: object,
    *,
    expected: Iterable[object] | None = None,
    reason: str | None = None,
    source: str = "executor",
    actor: str | None = None,
    override: str | None = None,
) -> bool:
    """See ConvSessions.set_status; the session is locked."""
    to = check_word("status", status, Status)
    by = check_word("source", source, TransitionSource)
    guard = None if expected is None else frozenset(_expected(expected))
    why = None if reason is None else work.body("reason", reason)
    who, excuse = optional_label("actor", actor), None if override is None else work.body("override", override)
    if by is TransitionSource.ADMIN and to not in BY_ADMIN:
        raise InvalidValue("status", f"an admin sets {', '.join(sorted(BY_ADMIN))}, and nothing else.")
    if excuse is not None and (who is None or not excuse.strip()):
        raise InvalidValue("override", "leaving a status that ended needs a justification and an actor.")
    current = session.status
    if guard is not None and current not in guard:
        return False
    if current == to or (current in TERMINAL and excuse is None):
        raise TransitionError(f"session {session.id!r}", str(current), to)
    now = work.now()
    ended = (session.ended_at or now) if to in TERMINAL else None
    work.run(
        _SET_SESSION,
        row_id=session.id,
        to=to,
        why=why,
        ended=ended,
        approximate=session.ended_at_is_approximate and ended is not None,
        at=now,
    )
    log(work, "session", session.id, current, to, reason=why, source=by, actor=who, override=excuse)
    fold(work, session.progression_id)
    return True


def finalize_branch(work: Work, branch: Branch, status: Status, ended_at: datetime | None) -> bool:
    """See Branches.finalize; the branch is locked."""
    if status not in TERMINAL or branch.status not in (None, Status.RUNNING):
        return False
    work.run(_SET_BRANCH, row_id=branch.id, to=status, ended=ended_at or work.now())
    log(work, "branch", branch.id, branch.status, status, source=TransitionSource.EXECUTOR)
    fold(work, branch.progression_id)
    return True


def log_creation(work: Work, session_id: str, status: Status) -> None:
    """The first row of history, of a session that is created with a status."""
    log(work, "session", session_id, None, status, source=TransitionSource.EXECUTOR)


def log(
    work: Work,
    kind: str,
    id: str,
    previous: str | None,
    status: str,
    *,
    source: TransitionSource,
    reason: str | None = None,
    actor: str | None = None,
    override: str | None = None,
) -> None:
    """One row of history, which comes after those there are whatever the clocks of their writers say."""
    row_id, at = work.runtime.ids.mint("stt"), work.now()
    latest = work.row(_LATEST, kind=kind, entity=id)
    if latest is not None and latest >= (at, row_id):
        at = latest[0] + timedelta(microseconds=1)
    row: dict[str, Any] = {
        **dict.fromkeys(_FIELDS),
        "id": row_id,
        "entity_type": kind,
        "entity_id": id,
        "previous_status": previous,
        "status": status,
        "reason_code": _NO_CODE,
        "reason_summary": reason,
        "source": source,
        "actor": actor,
        "created_at": at,
        "metadata": None if override is None else {"override": override},
    }
    work.run(_LOG, **row)


def history_of(work: Work, kind: str, id: str) -> list[StatusTransition]:
    """Every change of an entity's status, oldest first."""
    return [_value(row) for row in work.rows(_OF_ENTITY, kind=kind, entity=id)]


def _value(row: Row) -> StatusTransition:
    values = dict(zip(_FIELDS, row, strict=True))
    return build(StatusTransition, {**values, "reason_code": values["reason_code"] or None})


def _expected(expected: object) -> Iterable[Status | None]:
    if isinstance(expected, str) or not isinstance(expected, Iterable):
        raise InvalidValue("expected", "expected a list of statuses, in which None is one too.")
    for one in expected:
        yield None if one is None else check_word("expected", one, Status)
