"""Bindings: the named values of a run, in its root or in the frame of an execution."""

from collections.abc import Callable
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, TypeVar

from sqlalchemy import bindparam, case, select, update

from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.own_scope import stored_scope
from persist.db.transactions.repository import F, Repository, reads, writes, writes_if_allowed
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.transactions.verb_frame import Verb
from persist.db.values.arguments import check_choice, check_count, optional_count
from persist.errors import InvalidValue, NotFound
from persist.programs import names
from persist.programs.models import FRAME, bindings, runs
from persist.programs.schemas import Binding, BindingKind
from persist.programs.storage import attachments, binding_rows
from persist.programs.storage.attachments import RunFolder
from persist.programs.storage.binding_rows import BINDING, ask_locked, find_row, put
from persist.programs.storage.run_rows import GET_EXECUTION, RUN_EXISTS

List = list
T = TypeVar("T")
Give = Callable[[UnitOfWork, Binding, RunFolder | None], T]
"""Makes the result from a binding and the folder of its attachment."""
_LOOKS = 10
_B, _R = bindings.c, runs.c
_OF_RUN = select(*BINDING.columns).where(_B.run_id == param("run")).order_by(_B.created_at, FRAME, _B.name)
ALL_BINDINGS = Statement(_OF_RUN)
_NAMES = Statement(select(_B.name).where(_B.run_id == param("run"), _B.name >= names.ANONYMOUS, _B.name < f"{names.ANONYMOUS}:"))
_least = bindparam("least", type_=Int64())
_TAKE = Statement(
    update(runs)
    .where(_R.id == param("row_id"))
    .values(anonymous_names=case((_R.anonymous_names < _least, _least), else_=_R.anonymous_names) + 1)
    .returning(_R.anonymous_names)
)
_TAKEN = Statement(select(_R.anonymous_names).where(_R.id == param("row_id")))


class Bindings(Repository[F]):
    """`tx.programs.bindings`. `execution_id` is the frame, None the root."""

    _guarded = True

    @writes
    def bind(
        self,
        run_id: str,
        name: str,
        value: str | None,
        *,
        kind: str = "let",
        execution_id: int | None = None,
        source_statement: str | None = None,
        summary: str | None = None,
    ) -> Binding:
        """Bind a name to a value in one frame and return the stored row; an existing binding keeps its `created_at`.

        In a run file a value over `Settings.attachment_bytes` (of UTF-8) becomes a new file, `attachments/name__TOKEN.md`, in
        frame 42 `name__42__TOKEN.md`, and `summary` stays in the row; elsewhere it stays inline up to `max_json_bytes`.
        Raises Conflict if the name is a const or an input already, NotFound for the run or the frame.
        """
        work = self._work
        label, word = work.label("name", name), check_choice("kind", kind, BindingKind)
        text = None if value is None else work.body("value", value)
        statement, short = self._said(source_statement, summary)
        row = self._locked(run_id, label, execution_id)
        content = None
        if text is not None and attachments.folder_of(work, run_id) is not None and attachments.is_large(work, text):
            content, text = [text.encode("utf-8", "surrogatepass")], short
        elif text is not None:
            attachments.check_inline(work, text)
        return put(work, run_id, label, execution_id, text, row, kind=word, source_statement=statement, content=content)

    @writes
    def bind_file(
        self,
        run_id: str,
        name: str,
        path: str | Path,
        *,
        kind: str = "let",
        execution_id: int | None = None,
        source_statement: str | None = None,
        summary: str | None = None,
    ) -> Binding:
        """Bind a name to the current content of a file, of any size and kind; for everything else see `bind`.

        In a run file the content becomes an attachment, copied a megabyte at a time while the write lock is held; a rollback
        removes the copy. Elsewhere it must be UTF-8 text up to `max_json_bytes` (else PayloadTooLarge), stored inline.
        NotFound: no such file, or it vanished while it was read. InvalidValue: not a regular file, a link included; a database
        that this process has open; a file that was changed while it was read. After an error nothing is written.
        """
        work = self._work
        label, word = work.label("name", name), check_choice("kind", kind, BindingKind)
        source = attachments.check_source(path)
        statement, short = self._said(source_statement, summary)
        row = self._locked(run_id, label, execution_id)
        if attachments.folder_of(work, run_id) is None:
            text = attachments.whole_text(source, work.runtime.settings.max_json_bytes)
            return put(work, run_id, label, execution_id, text, row, kind=word, source_statement=statement)
        with closing(attachments.pieces(source)) as content:
            return put(work, run_id, label, execution_id, short, row, kind=word, source_statement=statement, content=content)

    @reads
    def resolve(self, run_id: str, name: str, *, execution_id: int | None = None) -> Binding:
        """The binding a name resolves to in a frame: its own, else the nearest caller's, else the root's; with its full value.

        If a large value was replaced after the snapshot began, its file is gone, and the newer value is returned.

        Raises NotFound for the name, the frame, or the file of a large value. Raises InvalidValue for a stored path of anything
        but a regular file below `attachments/`, a link included, and for content that is no text, PayloadTooLarge
        over `max_text_bytes` (use `open_file`), Conflict if the frames' parents form a circle.
        """
        return self._resolve(run_id, name, execution_id, _with_its_text)

    @reads
    def open_file(self, run_id: str, name: str, *, execution_id: int | None = None) -> BinaryIO:
        """The value a name resolves to in a frame as a binary stream, which the caller closes; for any size and kind.

        It may be read after the transaction, and does not change when the name is bound anew. An inline value is encoded as
        UTF-8; a missing value is empty. Errors as `resolve`, except those about text and size.
        """
        return self._resolve(run_id, name, execution_id, _as_stream)

    @reads
    def get(self, run_id: str, name: str, *, execution_id: int | None = None) -> Binding | None:
        """The binding of exactly this frame as stored, or None; a large value is in the file `attachment_path`."""
        frame = optional_count("execution_id", execution_id)
        row = find_row(self._work, run_id, self._work.label("name", name), frame)
        return None if row is None else BINDING.public(self._work, row)

    @reads
    def list(self, run_id: str) -> List[Binding]:
        """Every binding of the run as stored, the oldest first."""
        rows = self._work.rows(ALL_BINDINGS, run=stored_scope(self._work, "run_id", run_id))
        return [BINDING.public(self._work, row) for row in rows]

    @writes_if_allowed
    def next_anonymous(self, run_id: str) -> str:
        """A name for an anonymous value: anon_001, anon_002, …

        Under begin() and outside of a transaction the name is reserved and never given again, even if nothing is bound to it;
        under read() it is a preview of the next name. Raises NotFound for the run.
        """
        work = self._work
        stored = stored_scope(work, "run_id", run_id)
        bound = max((names.anonymous_number(name) for (name,) in work.rows(_NAMES, run=stored)), default=0)
        if work.writable:
            row = work.returned(_TAKE, row_id=run_id, least=bound)
            number = 0 if row is None else row[0]
        else:
            row = work.row(_TAKEN, row_id=run_id)
            number = 0 if row is None else max(row[0], bound) + 1
        if row is None:
            raise NotFound("program run", run_id)
        return names.anonymous_name(number)

    def _said(self, source_statement: str | None, summary: str | None) -> tuple[str | None, str | None]:
        work = self._work
        if summary is not None:
            attachments.check_inline(work, work.body("summary", summary))
        return None if source_statement is None else work.body("source_statement", source_statement), summary

    def _locked(self, run_id: str, name: str, execution_id: int | None) -> Row | None:
        work, stored = self._work, stored_scope(self._work, "run_id", run_id)
        frame = None if execution_id is None else check_count("execution_id", execution_id)
        with work.batch() as batch:
            if frame is None:
                found = batch.row(RUN_EXISTS, row_id=work.label("run_id", run_id))
            else:
                found = batch.row(GET_EXECUTION, row_run=stored, row_id=frame)
            row = ask_locked(work, batch, run_id, name, frame)
        if found.result is None:
            raise NotFound("program run", run_id) if frame is None else NotFound("execution", str(frame))
        return row.result

    def _resolve(self, run_id: str, name: str, execution_id: int | None, give: Give[T]) -> T:
        label = self._work.label("name", name)
        frame = None if execution_id is None else check_count("execution_id", execution_id)
        try:
            return _resolved(self._work, run_id, label, frame, give)
        except NotFound as error:
            if error.kind != attachments.KIND or self._work.writable:
                raise
        return _resolved_now(self._work.runtime, run_id, label, frame, give)


def _with_its_text(work: UnitOfWork, found: Binding, folder: RunFolder | None) -> Binding:
    if found.attachment_path is None or folder is None:
        return found
    text = folder.read(found.attachment_path, work.runtime.settings.max_text_bytes)
    return found.model_copy(update={"value": text})


def _as_stream(work: UnitOfWork, found: Binding, folder: RunFolder | None) -> BinaryIO:
    if found.attachment_path is None or folder is None:
        return BytesIO((found.value or "").encode("utf-8", "surrogatepass"))
    return folder.open(found.attachment_path)


def _resolved(work: UnitOfWork, run_id: str, label: str, frame: int | None, give: Give[T]) -> T:
    if frame is None:
        row = find_row(work, run_id, label, None)
        if row is None:
            raise NotFound("binding", label)
    else:
        row = binding_rows.resolve(work, run_id, label, frame)
    found = BINDING.public(work, row)
    folder = attachments.folder_of(work, found.run_id)
    if found.attachment_path is not None and folder is None:
        raise InvalidValue("attachment_path", f"{found.attachment_path!r} is a file, which only the run's own store can read.")
    return give(work, found, folder)


def _resolved_now(runtime: Runtime, run_id: str, label: str, frame: int | None, give: Give[T]) -> T:
    """Resolve in new snapshots, retrying while another writer replaces the value and removes its file."""
    for attempt in range(_LOOKS):
        work = UnitOfWork(runtime, writable=False)
        work.begin()
        try:
            with Verb(work, "Bindings.resolve", writes=False):
                return _resolved(work, run_id, label, frame, give)
        except NotFound as error:
            if error.kind != attachments.KIND or attempt == _LOOKS - 1:
                raise
        finally:
            work.end_read()
    raise AssertionError("unreachable: the last look returns or raises")
