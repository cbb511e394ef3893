"""One binding's row: reading, locking, and writing the value of a name in a frame."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from sqlalchemy import select, update

from persist.db.hot import Hot, Row, param
from persist.db.insert import insert_missing
from persist.db.own import shown_scope, stored_scope
from persist.db.spoilt import is_unreadable
from persist.db.values import build
from persist.db.work import Work
from persist.errors import Conflict, PersistError
from persist.programs import attachments, names
from persist.programs.attachments import RunFolder
from persist.programs.models import FRAME, bindings
from persist.programs.run_rows import this_second
from persist.programs.schemas import FIXED, Binding, BindingKind
from persist.programs.scopes import COLUMNS, FIELDS

_B, _frame = bindings.c, FRAME
_ROOT = -1
_THIS = (_B.run_id == param("row_run")) & (_B.name == param("row_name")) & (_frame == param("row_frame"))
_GET = Hot(select(*COLUMNS).where(_THIS))
_LOCK = Hot(select(*COLUMNS).where(_THIS).with_for_update())
_ADD = Hot(insert_missing(bindings))
_NAMED = Hot(select(_B.name).where(_B.attachment_path.contains(param("token"))).limit(1))
"""A row that names a file of that token, in whatever spelling of its path."""
_CHANGED = ("kind", "value", "source_statement", "attachment_path", "updated_at")
_SET = Hot(update(bindings).where(_THIS).values(**{name: param(f"new_{name}") for name in _CHANGED}))


def binding_value(work: Work, row: Row, **changed: Any) -> Binding:
    """A row of the columns of a binding, with the run's real id."""
    fields = dict(zip(FIELDS, row, strict=True)) | changed
    fields["run_id"] = shown_scope(work, "run_id", fields["run_id"])
    return build(Binding, fields)


def find_row(work: Work, run_id: str, name: str, execution_id: int | None, *, lock: bool = False) -> Row | None:
    """The row of a name in one frame, None being the root."""
    stored = stored_scope(work, "run_id", run_id)
    frame = _ROOT if execution_id is None else execution_id
    return work.row(_LOCK if lock else _GET, row_run=stored, row_name=name, row_frame=frame)


def put(
    work: Work,
    run_id: str,
    name: str,
    execution_id: int | None,
    value: str | None,
    *,
    kind: BindingKind,
    source_statement: str | None,
    content: Iterable[bytes] | None = None,
) -> Binding:
    """Write the value into its row, or the `content` beside the run's file. Conflict where the name is bound once and for all."""
    folder = attachments.folder_of(work, run_id)
    fields: dict[str, Any] = {
        "kind": kind,
        "value": value,
        "source_statement": source_statement,
        "attachment_path": None,
        "updated_at": this_second(work),
    }
    row = find_row(work, run_id, name, execution_id, lock=True)
    _check_rebinding(name, row)
    if content is None or folder is None:
        return _put(work, run_id, name, execution_id, fields, row, folder)
    path = folder.write(name, execution_id, content)
    attachments.remove_unless_committed(work, folder, path)
    try:
        return _put(work, run_id, name, execution_id, {**fields, "attachment_path": path}, row, folder)
    except BaseException:
        with suppress(PersistError):
            folder.remove(path)  # the transaction may go on
        raise


def _put(
    work: Work,
    run_id: str,
    name: str,
    execution_id: int | None,
    fields: dict[str, Any],
    row: Row | None,
    folder: RunFolder | None,
) -> Binding:
    while True:
        before = None if row is None else binding_value(work, row)
        if before is None:
            if _added(work, run_id, name, execution_id, fields):
                break
            row = find_row(work, run_id, name, execution_id, lock=True)  # another writer was faster: that one is replaced
            _check_rebinding(name, row)
            continue
        _replace(work, before, fields, folder)
        break
    written = find_row(work, run_id, name, execution_id)
    assert written is not None
    return binding_value(work, written)


def _check_rebinding(name: str, row: Row | None) -> None:
    kind = None if row is None else row[FIELDS.index("kind")]
    if not is_unreadable(kind) and kind in FIXED:
        raise Conflict(f"{name!r} is bound already, as {kind}, which is bound once.", constraint="bindings.kind")


def _added(work: Work, run_id: str, name: str, execution_id: int | None, fields: dict[str, Any]) -> bool:
    key = {"run_id": stored_scope(work, "run_id", run_id), "name": name, "execution_id": execution_id}
    return bool(work.run(_ADD, **key, **fields, created_at=fields["updated_at"]))


def _replace(work: Work, before: Binding, fields: dict[str, Any], folder: RunFolder | None) -> None:
    """Change the row in place: created_at, and columns that others added, stay. A file of ours goes with its last row."""
    named = {f"new_{name}": value for name, value in fields.items()}
    frame = _ROOT if before.execution_id is None else before.execution_id
    stored = stored_scope(work, "run_id", before.run_id)
    work.run(_SET, row_run=stored, row_name=before.name, row_frame=frame, **named)
    if folder is None or before.attachment_path is None or is_unreadable(before.attachment_path):
        return
    token = names.attachment_token(before.attachment_path)
    if token is not None and work.row(_NAMED, token=token) is None:
        attachments.forget(work, folder, before.attachment_path)
