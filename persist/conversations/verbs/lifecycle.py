"""The status of sessions and branches: None and running may become anything, a final one only by an override with an actor."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Unpack

from sqlalchemy import delete, insert, select, update

from persist.conversations.models import branches, sessions, transitions
from persist.conversations.schemas import Branch, ConvSession, Status, StatusChange, StatusTransition, TransitionSource, plain
from persist.conversations.storage.progressions import OF_BRANCH, OF_SESSION, ask_lag, fold_with, lagging_array
from persist.db.changes.batch import Batch, Pending
from persist.db.statements.prepared import Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.unit_of_work import UnitOfWork, acting
from persist.db.unreadable.cells import is_unreadable
from persist.db.values.arguments import check_choice, check_keywords, optional_label
from persist.db.values.clock import as_utc
from persist.db.values.json import JsonText
from persist.errors import InvalidValue, TransitionError

_S, _B, _T = sessions.c, branches.c, transitions.c
TERMINAL = frozenset(Status) - {Status.RUNNING}
BY_ADMIN = frozenset({Status.FAILED, Status.ABORTED, Status.CANCELLED})
_NO_CODE = ""  # the published column is NOT NULL in files of the original program
_LOG = Statement(insert(transitions))
_UNLOG = Statement(delete(transitions).where(_T.id == param("row_id")))
_TRANSITION = Values(StatusTransition, transitions, decode={"reason_code": lambda code: code or None})
_of_entity = (_T.entity_type == param("kind")) & (_T.entity_id == param("entity"))
_OF_ENTITY = Statement(select(*_TRANSITION.columns).where(_of_entity).order_by(_T.created_at, _T.id))
_LATEST = Statement(select(_T.created_at, _T.id).where(_of_entity).order_by(_T.created_at.desc(), _T.id.desc()).limit(1))
_STATUS = {"status": param("to"), "started_at": param("started"), "ended_at": param("ended")}
_SET_SESSION = Statement(
    update(sessions)
    .where(_S.id == param("row_id"))
    .values(
        **_STATUS,
        status_reason_code=param("code"),
        status_reason_summary=param("why"),
        status_evidence_refs=param("evidence"),
        ended_at_is_approximate=param("approximate"),
        updated_at=param("at"),
    )
)
_SET_BRANCH = Statement(update(branches).where(_B.id == param("row_id")).values(**_STATUS))


class StatusFacts:
    """What a change of status needs to know beside the locked session or branch, asked for with a batch."""

    def __init__(self, work: UnitOfWork, batch: Batch, kind: str, id: str) -> None:
        self.latest = ask_latest(batch, kind, id)
        """The newest row of its history."""
        self.lag = ask_lag(work, batch, OF_SESSION if kind == "session" else OF_BRANCH, id)


@dataclass(frozen=True, slots=True)
class Because:
    """Why a status changed: a code for programs, a summary for people, and evidence."""

    code: str | None = None
    summary: str | None = None
    evidence: JsonText | None = None


NO_REASON = Because()


def set_status(
    work: UnitOfWork,
    entity: ConvSession | Branch,
    status: object,
    *,
    known: StatusFacts,
    last: bool = True,
    **change: Unpack[StatusChange],
) -> bool:
    """See ConvSessions.set_status, for what is locked. `known`: asked with or after the lock. `last`: as of a batch."""
    to = check_choice("status", status, Status)
    given = check_keywords(change, StatusChange)
    by = check_choice("source", given.get("source", TransitionSource.EXECUTOR), TransitionSource)
    guard = frozenset(_expected(given["expected"])) if "expected" in given else None
    because = Because(
        code=optional_label("reason_code", given.get("reason_code")),
        summary=work.body("reason", given["reason"]) if "reason" in given else None,
        evidence=work.json("evidence_refs", plain(given["evidence_refs"])) if "evidence_refs" in given else None,
    )
    who = acting(work, "actor", given.get("actor"))
    excuse = str(work.body("override", given["override"])) if "override" in given else None
    if by is TransitionSource.ADMIN and to not in BY_ADMIN:
        raise InvalidValue("status", f"an admin sets {', '.join(sorted(BY_ADMIN))}, and nothing else.")
    if excuse is not None and (who is None or not excuse.strip()):
        raise InvalidValue("override", "leaving a status that ended needs a justification and an actor.")
    kind, current = ("session" if isinstance(entity, ConvSession) else "branch"), entity.status
    if guard is not None and current not in guard:
        return False
    if current == to or (current in TERMINAL and excuse is None):
        raise TransitionError(f"{kind} {entity.id!r}", str(current), to)
    before = None if is_unreadable(entity.ended_at) else entity.ended_at
    latest = known.latest.result
    changed = log_row(work, latest, kind, entity.id, current, to, because=because, source=by, actor=who, override=excuse)
    array = lagging_array(work, entity.progression_id, known.lag)
    with work.batch(last=last) as batch:
        _write(work, batch, entity, to, (before or work.now()) if to in TERMINAL else None, because)
        batch.run(_LOG, **changed)
        if array is not None:
            fold_with(batch, array)
    return True


def _write(
    work: UnitOfWork, batch: Batch, entity: ConvSession | Branch, to: Status, ended: datetime | None, because: Because
) -> None:
    """Update the status and its instants; on a session the reasons too, those of a branch are only in its history."""
    now = work.now()
    started = now if to is Status.RUNNING and entity.started_at is None else entity.started_at
    if isinstance(entity, Branch):
        batch.run(_SET_BRANCH, row_id=entity.id, to=to, started=started, ended=ended)
        return
    batch.run(
        _SET_SESSION,
        row_id=entity.id,
        to=to,
        started=started,
        ended=ended,
        code=because.code,
        why=because.summary,
        evidence=because.evidence,
        approximate=entity.ended_at_is_approximate and ended is not None,
        at=now,
    )


def beginning(work: UnitOfWork, status: Status | None, started_at: datetime | None) -> dict[str, Any]:
    """Status columns of a new entity: if running, `started_at` is now unless given; if ended, `ended_at` is now."""
    started = None if started_at is None else as_utc("started_at", started_at)
    return {
        "status": status,
        "started_at": work.now() if started is None and status is Status.RUNNING else started,
        "ended_at": work.now() if status in TERMINAL else None,
    }


def finalize_branch(work: UnitOfWork, branch: Branch, status: Status, ended_at: datetime | None, known: StatusFacts) -> bool:
    """See Branches.finalize; the branch is locked. `known`: as of `set_status`."""
    if status not in TERMINAL or branch.status not in (None, Status.RUNNING):
        return False
    changed = log_row(work, known.latest.result, "branch", branch.id, branch.status, status, source=TransitionSource.EXECUTOR)
    array = lagging_array(work, branch.progression_id, known.lag)
    with work.batch(last=True) as batch:
        _write(work, batch, branch, status, ended_at or work.now(), NO_REASON)
        batch.run(_LOG, **changed)
        if array is not None:
            fold_with(batch, array)
    return True


def ask_latest(batch: Batch, kind: str, id: str) -> Pending[Row | None]:
    """Read the newest history row of a session or branch with a batch, as the next one needs it."""
    return batch.row(_LATEST, kind=kind, entity=id)


class Creation:
    """The first history row of a session or branch with a status. `latest` is that of an entity that had the id before."""

    def __init__(self, batch: Batch, kind: str, id: str, status: Status | None) -> None:
        self._kind, self._id, self._status = kind, id, status
        self._latest = None if status is None else ask_latest(batch, kind, id)
        self._row: dict[str, Any] | None = None

    def log(self, work: UnitOfWork, batch: Batch) -> None:
        if self._latest is not None and self._status is not None:
            latest = self._latest.result
            self._row = log_row(work, latest, self._kind, self._id, None, self._status, source=TransitionSource.EXECUTOR)
            batch.run(_LOG, **self._row)

    def undo(self, work: UnitOfWork) -> None:
        """Delete it: another writer was faster to create the session or branch."""
        if self._row is not None:
            work.run(_UNLOG, row_id=self._row["id"])


def log_row(
    work: UnitOfWork,
    latest: Row | None,
    kind: str,
    id: str,
    previous: str | None,
    status: str,
    *,
    source: TransitionSource,
    because: Because = NO_REASON,
    actor: str | None = None,
    override: str | None = None,
) -> dict[str, Any]:
    """A history row; its instant is later than that of every existing row, even if the writers' clocks differ."""
    row_id, at = work.runtime.ids.mint("stt"), work.now()
    if latest is not None and not any(map(is_unreadable, latest)) and latest >= (at, row_id):
        at = latest[0] + timedelta(microseconds=1)
    return {
        **dict.fromkeys(_TRANSITION.fields),
        "id": row_id,
        "entity_type": kind,
        "entity_id": id,
        "previous_status": previous,
        "status": status,
        "reason_code": because.code or _NO_CODE,
        "reason_summary": because.summary,
        "evidence_refs": because.evidence,
        "source": source,
        "actor": acting(work, "actor", actor),
        "created_at": at,
        "metadata": None if override is None else {"override": override},
    }


def history_of(work: UnitOfWork, kind: str, id: str) -> list[StatusTransition]:
    """Every change of an entity's status, oldest first."""
    return [_TRANSITION(row) for row in work.rows(_OF_ENTITY, kind=kind, entity=id)]


def _expected(expected: object) -> Iterable[Status | None]:
    if isinstance(expected, str) or not isinstance(expected, Iterable):
        raise InvalidValue("expected", "expected a list of statuses, in which None is one too.")
    for one in expected:
        yield None if one is None else check_choice("expected", one, Status)
