"""Bindings: the named values of a run, in its root or in the frame of an execution."""

from sqlalchemy import bindparam, case, select, update

from persist.db.checks import check_count, check_word, optional_count
from persist.db.hot import Hot, param
from persist.db.own import stored_scope
from persist.db.repository import Repository, reads, writes
from persist.db.runtime import Runtime
from persist.db.types import Whole
from persist.db.work import Work
from persist.errors import InvalidValue, NotFound
from persist.programs import attachments, names, scopes
from persist.programs.binding_rows import binding_value, find_row, put
from persist.programs.execution_rows import get_execution
from persist.programs.models import FRAME, bindings, runs
from persist.programs.run_rows import check_run_exists
from persist.programs.schemas import Binding, BindingKind

List = list
_LOOKS = 10
_B, _R = bindings.c, runs.c
_OF_RUN = select(*scopes.COLUMNS).where(_B.run_id == param("run")).order_by(_B.created_at, FRAME, _B.name)
_ALL = Hot(_OF_RUN)
_NAMES = Hot(select(_B.name).where(_B.run_id == param("run"), _B.name >= names.ANONYMOUS, _B.name < f"{names.ANONYMOUS}:"))
_least = bindparam("least", type_=Whole())
_TAKE = Hot(
    update(runs)
    .where(_R.id == param("row_id"))
    .values(anonymous_names=case((_R.anonymous_names < _least, _least), else_=_R.anonymous_names) + 1)
    .returning(_R.anonymous_names)
)
_TAKEN = Hot(select(_R.anonymous_names).where(_R.id == param("row_id")))


class Bindings(Repository):
    """`tx.programs.bindings`. `execution_id` is the frame, None the root."""

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
        """Give a name its value in one frame; `created_at` stays when it had one. What is given back is the stored row.

        In a run file a value over `Settings.attachment_bytes` (of UTF-8) becomes a new file, `attachments/name__TOKEN.md`, in
        frame 42 `name__42__TOKEN.md`, and `summary` stays in the row; elsewhere it stays inline up to `max_json_bytes`.
        Conflict if the name is a const or an input already; NotFound for the run or the frame.
        """
        work = self._work
        label, word = work.label("name", name), check_word("kind", kind, BindingKind)
        text = None if value is None else work.body("value", value)
        statement = None if source_statement is None else work.body("source_statement", source_statement)
        if summary is not None:
            attachments.check_inline(work, work.body("summary", summary))
        if execution_id is None:
            check_run_exists(work, run_id)
        else:
            get_execution(work, run_id, check_count("execution_id", execution_id))
        return put(work, run_id, label, execution_id, text, kind=word, source_statement=statement, summary=summary)

    @reads
    def resolve(self, run_id: str, name: str, *, execution_id: int | None = None) -> Binding:
        """What the name means in a frame: its own binding, else the nearest caller's, else the root's. Its value is whole.

        A large value that was replaced since the snapshot began is the newer one, since its file is gone.

        NotFound for the name, the frame, or the file of a large value; InvalidValue for a stored path of anything but a
        regular file below `attachments/`, a link included; Conflict where the frames' parents form a circle.
        """
        label = self._work.label("name", name)
        frame = None if execution_id is None else check_count("execution_id", execution_id)
        try:
            return _resolved(self._work, run_id, label, frame)
        except NotFound as error:
            if error.kind != attachments.KIND or self._work.writable:
                raise
        return _resolved_now(self._work.runtime, run_id, label, frame)

    @reads
    def get(self, run_id: str, name: str, *, execution_id: int | None = None) -> Binding | None:
        """The binding of this very frame, as it is stored: a large value is at `attachment_path`."""
        frame = optional_count("execution_id", execution_id)
        row = find_row(self._work, run_id, self._work.label("name", name), frame)
        return None if row is None else binding_value(self._work, row)

    @reads
    def list(self, run_id: str) -> List[Binding]:
        """Every binding of the run as it is stored, the first made first."""
        rows = self._work.rows(_ALL, run=stored_scope(self._work, "run_id", run_id))
        return [binding_value(self._work, row) for row in rows]

    @reads
    def next_anonymous(self, run_id: str) -> str:
        """A name for a value that the program does not name: anon_001, anon_002, …

        Under begin() the name is taken, and is not given again even if nothing is bound to it; under read() it is only what
        the next one would be. NotFound for the run.
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


def _resolved(work: Work, run_id: str, label: str, frame: int | None) -> Binding:
    if frame is None:
        row = find_row(work, run_id, label, None)
        if row is None:
            raise NotFound("binding", label)
    else:
        row = scopes.resolve(work, run_id, label, frame)
    found = binding_value(work, row)
    if found.attachment_path is None:
        return found
    folder = attachments.folder_of(work, found.run_id)
    if folder is None:
        raise InvalidValue("attachment_path", f"{found.attachment_path!r} is a file, which only the run's own store can read.")
    return binding_value(work, row, value=folder.read(found.attachment_path))


def _resolved_now(runtime: Runtime, run_id: str, label: str, frame: int | None) -> Binding:
    """In new snapshots, one of which is read before another writer replaces its value, too."""
    for attempt in range(_LOOKS):
        work = Work(runtime, writable=False)
        work.begin()
        try:
            with work.verb("Bindings.resolve", writes=False):
                return _resolved(work, run_id, label, frame)
        except NotFound as error:
            if error.kind != attachments.KIND or attempt == _LOOKS - 1:
                raise
        finally:
            work.end_read()
    raise AssertionError("unreachable: the last look returns or raises")
