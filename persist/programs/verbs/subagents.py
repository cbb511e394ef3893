"""Subagents that are not trusted: those with a file of their own, which is taken in, and those with a token for the server."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError
from sqlalchemy import func, insert, literal_column, select, update

from persist.db.changes.batch import Batch, Pending
from persist.db.dialects.backends import subagent_access
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.own_scope import ScopedValues, stored_scope
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import error_of, is_unreadable
from persist.db.values.arguments import check_choice, check_count, check_timedelta, optional_label
from persist.db.values.clock import instant_after
from persist.db.values.escaping import has_half
from persist.db.values.frozen import construct
from persist.errors import Conflict, InvalidValue, NotFound
from persist.programs.models import subagents
from persist.programs.schemas import (
    FIXED,
    Agent,
    Binding,
    Isolation,
    RefusedRow,
    ServerAccess,
    StartedSubagent,
    Subagent,
    TakenIn,
    TakenRow,
)
from persist.programs.storage import attachments, lent_files
from persist.programs.storage.binding_rows import BINDING, OF_FRAME, find_row, put
from persist.programs.storage.run_rows import GET_EXECUTION, RUN_EXISTS, this_second
from persist.programs.verbs.agents import AGENT, GET_AGENT, Agents

if TYPE_CHECKING:
    from persist.db.dialects.backends import SubagentAccess


# Every check comes before the first write of its row, so that a refused row has written nothing.

_KIND = BINDING.fields.index("kind")
Outcome = tuple[str | None, str | None]
"""The name that a row has in the report, and why the row is refused; None if it was taken."""


def lent_again(one: Binding) -> str:
    """The digest of a lent value: a row of the file that still has it was not written by the subagent."""
    return lent_files.digest(one.kind, one.value, one.source_statement)


def take_in_file(work: UnitOfWork, home: Path, subagent: Subagent, lent: Mapping[str, Any]) -> TakenIn:
    """Bind, remember and add what the file says and the subagent may; the rest is refused. A bad file is refused as a whole."""
    folder = lent_files.LentFolder(home, subagent, work.runtime.settings.max_text_bytes)
    try:
        rows = folder.rows()
    except InvalidValue as error:
        refused = RefusedRow(subagent_id=subagent.id, table=None, name=None, reason=error.reason)
        return TakenIn(taken=[], refused=[refused])
    taking = _Taking(work, folder, subagent, lent)
    found = TakenIn(taken=[], refused=[])
    for table, take in (("bindings", taking.binding), ("agents", taking.memory), ("agent_segments", taking.segment)):
        for row in rows[table]:
            for name, reason in take(row):
                if reason is None:
                    found.taken.append(TakenRow(subagent_id=subagent.id, table=table, name=str(name)))
                else:
                    found.refused.append(RefusedRow(subagent_id=subagent.id, table=table, name=name, reason=reason))
    return found


class _Taking:
    """One file's rows, table by table. A method yields nothing for a row that is as it was lent."""

    def __init__(self, work: UnitOfWork, folder: lent_files.LentFolder, subagent: Subagent, lent: Mapping[str, Any]) -> None:
        self._work, self._folder, self._subagent, self._lent = work, folder, subagent, lent
        self._agents = Agents(work)

    def binding(self, row: tuple[Any, ...]) -> Iterator[Outcome]:
        found = lent_files.checked_binding(row, self._subagent.execution_id)
        if isinstance(found, str):
            yield lent_files.shown_name(row[1]), found
            return
        lent = dict(self._lent.get("bindings") or {}).get(found.name)
        if found.attachment_path is None and lent == lent_files.digest(found.kind, found.value, found.source_statement):
            return
        yield found.name, self._bind(found)

    def _bind(self, found: lent_files.LentBinding) -> str | None:
        work, run_id, frame = self._work, self._subagent.run_id, self._subagent.execution_id
        before = find_row(work, run_id, found.name, frame, lock=True)
        if before is not None and any(map(is_unreadable, before)):
            return "the value that it would replace cannot be read."
        if before is not None and before[_KIND] in FIXED:
            return "it is bound already, as something that is bound once."
        try:
            for column, text in (("value", found.value), ("source_statement", found.source_statement)):
                if text is not None:
                    work.body(column, text)
            content, value = self._content(found)
        except InvalidValue as error:
            return f"{error.path}: {error.reason}"
        put(
            work,
            run_id,
            found.name,
            frame,
            value,
            before,
            kind=found.kind,
            source_statement=found.source_statement,
            content=None if content is None else [content],
        )
        return None

    def _content(self, found: lent_files.LentBinding) -> tuple[bytes | None, str | None]:
        """What becomes an attachment of the run, and what stays in the row. Raises InvalidValue."""
        work, value = self._work, found.value
        if found.attachment_path is not None:
            content = self._folder.attachment(found.attachment_path)
            if self._has_folder():
                attachments.check_inline(work, value or "")
                return content, value
            try:
                value = content.decode("utf-8")
            except UnicodeDecodeError:
                raise InvalidValue("attachment_path", "it is not text in UTF-8, which is what a row takes.") from None
        elif value is not None and attachments.is_large(work, value) and self._has_folder():
            return value.encode("utf-8"), None
        attachments.check_inline(work, value or "")
        return None, value

    def _has_folder(self) -> bool:
        return attachments.folder_of(self._work, self._subagent.run_id) is not None

    def memory(self, row: tuple[Any, ...]) -> Iterator[Outcome]:
        scope, name, memory = row
        reason = self._not_mine(scope, name) or ("it has no memory." if memory is None else lent_files.no_text(memory))
        if reason is None and lent_files.digest(memory) == self._lent.get("memory"):
            return
        if memory is None and self._lent.get("memory") == lent_files.digest(None):
            return
        if reason is None:
            reason = self._over(memory=memory)
        if reason is None:
            self._agents.remember(self._subagent.run_id, name, memory)
        yield lent_files.shown_name(name), reason

    def segment(self, row: tuple[Any, ...]) -> Iterator[Outcome]:
        scope, name, prompt, summary = row
        reason = self._not_mine(scope, name) or lent_files.no_text(prompt) or lent_files.no_text(summary)
        if reason is None:
            reason = self._over(prompt=prompt or "", summary=summary or "")
        if reason is None:
            self._agents.add_segment(self._subagent.run_id, name, prompt=prompt or "", summary=summary or "")
        yield lent_files.shown_name(name), reason

    def _not_mine(self, scope: Any, name: Any) -> str | None:
        if scope != "":
            return "it is not a row of this run."
        if type(name) is not str or name != self._subagent.agent_name:
            return "it is of an agent that is not the subagent's."
        if self._agents.recall(self._subagent.run_id, name) is None:
            return "the agent is not there any more."
        return None

    def _over(self, **texts: str) -> str | None:
        try:
            for column, text in texts.items():
                self._work.body(column, text)
        except InvalidValue as error:
            return f"{error.path}: {error.reason}"
        return None


List = list
LASTS = timedelta(hours=1)
ROLE = "persist_subagent"
_ROOT = -1
_S = subagents.c
_SUBAGENT = ScopedValues(Subagent, subagents, "run_id")
_ADD = Statement(
    insert(subagents).values(**{name: param(name) for name in (*_SUBAGENT.fields, "token_hash", "lent")}, report=None)
)
_OF_RUN = select(*_SUBAGENT.columns).where(_S.run_id == param("run")).order_by(_S.created_at, _S.id)
_ALL = Statement(_OF_RUN)
_THIS = (_S.run_id == param("run")) & (_S.id == param("row_id"))
_GET = Statement(select(*_SUBAGENT.columns).where(_THIS))
_LOCK = Statement(select(*_SUBAGENT.columns).where(_THIS).with_for_update())
_frame = func.coalesce(_S.execution_id, literal_column("-1"))
_FILES = Statement(
    select(*_SUBAGENT.columns, _S.lent, _S.report)
    .where(_S.run_id == param("run"), _frame == param("frame"), _S.isolation == Isolation.FILE)
    .order_by(_S.created_at, _S.id)
    .with_for_update()
)
_END = Statement(update(subagents).where(_THIS).values(ended_at=param("at")))
_TAKEN = Statement(update(subagents).where(_THIS).values(ended_at=param("at"), report=param("said")))


class Subagents(Repository[F]):
    """`tx.programs.subagents`. `execution_id` is the frame, None the root."""

    @writes
    def start(
        self,
        run_id: str,
        *,
        isolation: str,
        execution_id: int | None = None,
        agent: str | None = None,
        expires_in: timedelta = LASTS,
        role: str = ROLE,
    ) -> StartedSubagent:
        """Note a subagent that reaches nothing but its frame's values and the memory of `agent`, which must have been started.

        isolation   "file": `persist.programs.subagent` makes its file. "role", on a server: it connects as `role` with a token
        expires_in  how long the token is good for; it also ends with the frame, with the run, and by `end`

        Raises NotFound for the run, the frame or the agent. Raises InvalidValue for "role" in a file. Raises Conflict for "role"
        where `persist grants --role subagent` was not run, or where the log of events is on, which refuses other writers.
        """
        work = self._work
        kind, name = check_choice("isolation", isolation, Isolation), optional_label("agent", agent)
        lasts, login = check_timedelta("expires_in", expires_in, zero=False), work.label("role", role)
        with work.batch() as batch:
            asked = self._ask_frame(batch, run_id, execution_id)
            values = batch.rows(OF_FRAME, row_run=asked.stored, row_frame=_ROOT if asked.frame is None else asked.frame)
            recalled = None if name is None else batch.row(GET_AGENT, row_run=asked.stored, row_name=name)
        asked.check()
        if recalled is not None and recalled.result is None:
            raise NotFound("agent", str(name))
        memory = None if recalled is None or recalled.result is None else _readable(work, recalled.result)
        access = None
        if kind is Isolation.ROLE:
            access = subagent_access(work.runtime.dialect)
            if access is None:
                raise InvalidValue("isolation", "a file has no roles: use isolation='file', or a database on a server.")
            if work.runtime.log is not None:
                raise Conflict("The log of events is on, and refuses whoever does not keep it: use isolation='file'.")
            if not access.is_ready(work.row, login):
                raise Conflict(f"The role {login!r} may do nothing here yet: run what `persist grants --role subagent` prints.")
        token = None if access is None else secrets.token_urlsafe(32)
        lent = None if access is not None else _Lent(work, values.result, memory)
        now = this_second(work)
        fields = {
            "id": work.runtime.ids.mint("sub"),
            "run_id": asked.stored,
            "execution_id": asked.frame,
            "isolation": kind,
            "agent_name": name,
            "created_at": now,
            "expires_at": None if token is None else instant_after("expires_in", now, lasts),
            "ended_at": None,
        }
        hashed = None if token is None else sha256(token.encode()).hexdigest()
        with work.batch(last=True) as batch:
            batch.run(_ADD, **fields, token_hash=hashed, lent=None if lent is None else lent.digests)
        return StartedSubagent(
            subagent=construct(Subagent, {**fields, "run_id": run_id}),
            bindings=[] if lent is None else lent.bindings,
            memory=None if lent is None else memory,
            access=None if access is None or token is None else _server_access(access, login, token),
        )

    @reads
    def get(self, run_id: str, id: str) -> Subagent:
        """The subagent. Raises NotFound."""
        return self._found(run_id, id, _GET)

    @reads
    def list(self, run_id: str) -> List[Subagent]:
        """Every isolated subagent of the run, the oldest first."""
        return [
            _SUBAGENT.public(self._work, row) for row in self._work.rows(_ALL, run=stored_scope(self._work, "run_id", run_id))
        ]

    @writes
    def end(self, run_id: str, id: str) -> Subagent:
        """Revoke its token, or refuse its file from now on; one that has ended stays as it is. Raises NotFound."""
        found = self._found(run_id, id, _LOCK)
        if found.ended_at is not None:
            return found
        now = this_second(self._work)
        with self._work.batch(last=True) as batch:
            batch.run(_END, run=stored_scope(self._work, "run_id", run_id), row_id=id, at=now)
        return found.model_copy(update={"ended_at": now})

    @writes
    def take_in(self, run_id: str, execution_id: int | None = None, *, folder: str | Path | None = None) -> TakenIn:
        """Read the files of the frame's subagents as hostile input, and bind what they may bind, all in this transaction.

        A file is taken in once: another call returns the same and does nothing more. A file that is refused as a whole stays to
        be taken in. A value is refused if its frame is another, its name or attachment is not plain, it is a const or an input
        that is bound already, it is over a limit, or a cell is no text; of memories and segments only the agent's own are taken.

        folder  what holds the folder `subagents`: by default that of the run's file. Needed for a run without a file of its own

        Raises NotFound for the run or the frame, InvalidValue without a folder.
        """
        work = self._work
        own = attachments.folder_of(work, work.label("run_id", run_id))
        if folder is None and own is None:
            raise InvalidValue("folder", "the run has no file of its own, so say which folder holds those of its subagents.")
        home = own.home if folder is None and own is not None else attachments.checked_folder(folder)
        with work.batch() as batch:
            asked = self._ask_frame(batch, run_id, execution_id)
            waiting = batch.rows(_FILES, run=asked.stored, frame=_ROOT if asked.frame is None else asked.frame)
        asked.check()
        whole = TakenIn(taken=[], refused=[])
        for row in waiting.result:
            subagent, lent, report = _SUBAGENT.public(work, row[:-2]), row[-2], row[-1]
            if report is not None:
                found = _reported(report)
            elif subagent.ended_at is not None:
                continue
            else:
                found = take_in_file(work, home, subagent, lent if isinstance(lent, dict) else {})
                if all(one.table is not None for one in found.refused):
                    work.run(
                        _TAKEN, run=asked.stored, row_id=subagent.id, at=this_second(work), said=found.model_dump(mode="json")
                    )
            whole = TakenIn(taken=[*whole.taken, *found.taken], refused=[*whole.refused, *found.refused])
        return whole

    def _ask_frame(self, batch: Batch, run_id: str, execution_id: int | None) -> "_FrameQuery":
        work, stored = self._work, stored_scope(self._work, "run_id", run_id)
        frame = None if execution_id is None else check_count("execution_id", execution_id)
        if frame is None:
            return _FrameQuery(run_id, stored, frame, batch.row(RUN_EXISTS, row_id=work.label("run_id", run_id)))
        return _FrameQuery(run_id, stored, frame, batch.row(GET_EXECUTION, row_run=stored, row_id=frame))

    def _found(self, run_id: str, id: str, statement: Statement) -> Subagent:
        row = self._work.row(statement, run=stored_scope(self._work, "run_id", run_id), row_id=self._work.label("id", id))
        if row is None:
            raise NotFound("subagent", id)
        return _SUBAGENT.public(self._work, row)


class _FrameQuery(NamedTuple):
    run_id: str
    stored: str
    frame: int | None
    found: Pending[Row | None]

    def check(self) -> None:
        if self.found.result is None:
            raise NotFound("program run", self.run_id) if self.frame is None else NotFound("execution", str(self.frame))


class _Lent:
    """What a file begins with: values that a command line can hold, and the digests that tell later what was changed."""

    def __init__(self, work: UnitOfWork, rows: Sequence[Row], memory: Agent | None) -> None:
        readable = [BINDING.public(work, row) for row in rows if not any(map(is_unreadable, row))]
        self.bindings = [
            one for one in readable if not any(has_half(text or "") for text in (one.name, one.value, one.source_statement))
        ]
        self.digests: dict[str, Any] = {"bindings": {one.name: lent_again(one) for one in self.bindings}}
        self.digests["memory"] = None if memory is None else lent_files.digest(memory.memory)


def _readable(work: UnitOfWork, row: Row) -> Agent:
    for cell in row:
        if is_unreadable(cell):
            raise error_of(cell)
    return AGENT.public(work, row)


def _reported(report: Any) -> TakenIn:
    if is_unreadable(report):
        raise error_of(report)
    try:
        return TakenIn.model_validate(report)
    except ValidationError:
        raise InvalidValue("report", "what is stored of a file that was taken in is none of persist's reports.") from None


def _server_access(access: "SubagentAccess", role: str, token: str) -> ServerAccess:
    return ServerAccess(server=access.server(role), token=token, options=access.options(token), dsn=access.dsn(role, token))
