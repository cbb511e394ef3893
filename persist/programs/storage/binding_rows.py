"""Reading, locking and writing the row of a binding: the value of a name in a frame."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from sqlalchemy import func, literal, select, update

from persist.db.changes.batch import Batch, Pending
from persist.db.expressions.upsert import insert_missing, seen
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.own_scope import ScopedValues, stored_scope
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.db.values.arguments import UNBOUNDED
from persist.errors import Conflict, NotFound, PersistError
from persist.programs import names
from persist.programs.models import FRAME, bindings, executions
from persist.programs.schemas import FIXED, Binding, BindingKind
from persist.programs.storage import attachments
from persist.programs.storage.attachments import RunFolder
from persist.programs.storage.run_rows import this_second

# One recursive query walks from a frame to its parents and counts the distance: the nearest frame wins regardless of ids, and a
# circle of parents made by a raw writer ends at the maximum.

_MAX = 1000
_ROOT = -1
_B = bindings.c
_E = executions.c
_frame = FRAME
BINDING = ScopedValues(Binding, bindings, "run_id")
_parent = executions.alias("parent")
_start = select(_E.id, _E.parent_id, literal(0, Int64()).label("depth")).where(_E.run_id == param("run"), _E.id == param("frame"))
_walked = _start.cte("chain", recursive=True)
_CHAIN = _walked.union_all(
    select(_parent.c.id, _parent.c.parent_id, _walked.c.depth + literal(1, Int64()))
    .select_from(_walked.join(_parent, _parent.c.id == _walked.c.parent_id))
    .where(_parent.c.run_id == param("run"), _walked.c.depth < param("maximum"))
)
_frames = (
    select(_CHAIN.c.id.label("frame"), _CHAIN.c.depth)
    .union_all(select(literal(_ROOT, Int64()), literal(UNBOUNDED, Int64())))
    .cte("frames")
)
_deepest = select(func.max(_CHAIN.c.depth)).scalar_subquery()
_RESOLVE = Statement(
    select(_deepest, *BINDING.columns)
    .select_from(_frames.join(bindings, _frame == _frames.c.frame))
    .where(_B.run_id == param("run"), _B.name == param("name"))
    .order_by(_frames.c.depth)
    .limit(1)
)
_DEEPEST = Statement(select(func.max(_CHAIN.c.depth)))


def resolve(work: UnitOfWork, run_id: str, name: str, execution_id: int) -> Row:
    """The binding's row that the name resolves to in the frame. Raises NotFound, or Conflict for a circle of frames."""
    maximum = _maximum(work)
    stored = stored_scope(work, "run_id", run_id)
    row = work.row(_RESOLVE, run=stored, frame=execution_id, name=name, maximum=maximum)
    deepest = depth(work, run_id, execution_id) if row is None else row[0]
    if deepest is None:
        raise NotFound("execution", str(execution_id))
    if deepest >= maximum:
        raise Conflict(f"The parents of execution {execution_id} form a circle.")
    if row is None:
        raise NotFound("binding", name)
    return row[1:]


def depth(work: UnitOfWork, run_id: str, execution_id: int) -> int | None:
    """How many frames are above that one; None if it does not exist. A circle of parents counts as the maximum depth."""
    stored = stored_scope(work, "run_id", run_id)
    return depth_in(work.row(_DEEPEST, run=stored, frame=execution_id, maximum=_maximum(work)))


def ask_depth(work: UnitOfWork, batch: Batch, run_id: str, execution_id: int) -> Pending[Row | None]:
    """Count the frames above an execution with a batch; `depth_in` the row is what `depth` returns."""
    stored = stored_scope(work, "run_id", run_id)
    return batch.row(_DEEPEST, run=stored, frame=execution_id, maximum=_maximum(work))


def depth_in(row: Row | None) -> int | None:
    """The number of frames in a row of `ask_depth`; None if the execution does not exist."""
    return None if row is None or row[0] is None else int(row[0])


def _maximum(work: UnitOfWork) -> int:
    return max(_MAX, work.runtime.settings.max_depth + 1)


_TRIES = 10
"""How often a name that was taken and is gone again is bound anew. It is taken for good by a row that row security hides."""
_THIS = (_B.run_id == param("row_run")) & (_B.name == param("row_name")) & (_frame == param("row_frame"))
_GET = Statement(select(*BINDING.columns).where(_THIS))
OF_FRAME = Statement(
    select(*BINDING.columns).where(_B.run_id == param("row_run"), _frame == param("row_frame")).order_by(_B.name)
)
_LOCK = Statement(select(*BINDING.columns).where(_THIS).with_for_update())
_ADD = Statement(insert_missing(bindings).returning(*BINDING.columns))
_NAMED = Statement(select(_B.name).where(_B.attachment_path.contains(param("token"))).limit(1))
"""Finds a row that names a token's file, in any spelling of the path."""
_CHANGED = ("kind", "value", "source_statement", "attachment_path", "updated_at")
_SET = Statement(update(bindings).where(_THIS).values(**{name: param(f"new_{name}") for name in _CHANGED}))


def find_row(work: UnitOfWork, run_id: str, name: str, execution_id: int | None, *, lock: bool = False) -> Row | None:
    """The row of a name in one frame; `execution_id` None is the root."""
    return work.row(_LOCK if lock else _GET, **_key(work, run_id, name, execution_id))


def ask_locked(work: UnitOfWork, batch: Batch, run_id: str, name: str, execution_id: int | None) -> Pending[Row | None]:
    """What `find_row` with `lock` does, with a batch."""
    return batch.row(_LOCK, **_key(work, run_id, name, execution_id))


def _key(work: UnitOfWork, run_id: str, name: str, execution_id: int | None) -> dict[str, Any]:
    frame = _ROOT if execution_id is None else execution_id
    return {"row_run": stored_scope(work, "run_id", run_id), "row_name": name, "row_frame": frame}


def put(
    work: UnitOfWork,
    run_id: str,
    name: str,
    execution_id: int | None,
    value: str | None,
    row: Row | None,
    *,
    kind: BindingKind,
    source_statement: str | None,
    content: Iterable[bytes] | None = None,
) -> Binding:
    """Write the value into its `row` that `ask_locked` found, or `content` into a file. Raises Conflict for a const or input."""
    folder = attachments.folder_of(work, run_id)
    fields: dict[str, Any] = {
        "kind": kind,
        "value": value,
        "source_statement": source_statement,
        "attachment_path": None,
        "updated_at": this_second(work),
    }
    _check_rebinding(name, row)
    if content is None or folder is None:
        return _put(work, run_id, name, execution_id, fields, row, folder)
    path = folder.write(name, execution_id, content)
    attachments.remove_unless_committed(work, folder, path)
    try:
        return _put(work, run_id, name, execution_id, {**fields, "attachment_path": path}, row, folder)
    except BaseException:
        with suppress(PersistError):
            folder.remove(path)  # the caller may catch this and commit
        raise


def _put(
    work: UnitOfWork,
    run_id: str,
    name: str,
    execution_id: int | None,
    fields: dict[str, Any],
    row: Row | None,
    folder: RunFolder | None,
) -> Binding:
    for _ in range(_TRIES):
        if row is not None:
            break
        written = _added(work, run_id, name, execution_id, fields)
        if written is not None:
            return BINDING.public(work, written)
        row = find_row(work, run_id, name, execution_id, lock=True)  # another writer was faster
        _check_rebinding(name, row)
    row = seen(row, _ADD, "binding", name)
    return BINDING.public(work, _replaced(work, run_id, BINDING.public(work, row), fields, folder))


def _check_rebinding(name: str, row: Row | None) -> None:
    kind = None if row is None else row[BINDING.fields.index("kind")]
    if not is_unreadable(kind) and kind in FIXED:
        raise Conflict(f"{name!r} is bound already, as {kind}, which is bound once.", constraint="bindings.kind")


def _added(work: UnitOfWork, run_id: str, name: str, execution_id: int | None, fields: dict[str, Any]) -> Row | None:
    """The new row; None, and no change, if the name is taken."""
    key = {"run_id": stored_scope(work, "run_id", run_id), "name": name, "execution_id": execution_id}
    return work.returned(_ADD, **key, **fields, created_at=fields["updated_at"])


def _replaced(work: UnitOfWork, run_id: str, before: Binding, fields: dict[str, Any], folder: RunFolder | None) -> Row:
    """Update in place: created_at and custom columns stay. A file that the library wrote is removed with its last row."""
    named = {f"new_{name}": value for name, value in fields.items()}
    this = _key(work, run_id, before.name, before.execution_id)
    with work.batch(last=folder is None) as batch:
        batch.run(_SET, **this, **named)
        written = batch.row(_GET, **this)
    path = before.attachment_path
    if folder is not None and path is not None and not is_unreadable(path):
        token = names.attachment_token(path)
        if token is not None and work.row(_NAMED, token=token) is None:
            attachments.forget(work, folder, path)
    assert written.result is not None
    return written.result
