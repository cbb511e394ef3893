"""Folding: text moves from a part's delta rows into the part's row, in one transaction.

A fold re-reads the deltas, appends them and deletes exactly those rows, so any process may fold any part, also repeatedly. It
never changes `updated_at`, the instant of the last structural chunk.

Long text is appended by the database itself, unless it has escapes, which only Python code can decode.

Everything is read before anything is written, in a way that no stored value can break: a part or delta that another program
damaged raises UnreadableRow and is left unchanged, with all its deltas. Functions that fold many parts skip and report it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import ColumnElement, bindparam, delete, exists, func, select, update

from persist.chat.models import deltas, parts
from persist.chat.reducer.parts import Part, can_grow, grow, is_part
from persist.chat.storage.statements import FOLD_PART, REWRITE_PART
from persist.db.changes.batch import Batch, Pending, StatementRunner
from persist.db.expressions.json_text import readable, stored_text
from persist.db.expressions.text import appended_text, has_escapes, has_frame
from persist.db.statements.prepared import Row, Statement, param
from persist.db.values.escaping import unescape_text
from persist.db.values.json import JsonFrame, JsonLimits, JsonText, decode, encode
from persist.errors import InvalidValue, UnreadableRow

# Reading JSON and text of stored rows, which other programs may have written or damaged.

log = logging.getLogger("persist")
_PARTS, _PIECES = "chat_parts", "chat_part_deltas"
ANY_SIZE = JsonLimits(max_bytes=2**31)  # each delta's size was checked when it was fed


def stored_object(db: StatementRunner, stored: str, what: str) -> dict[str, Any]:
    """The object in a Json column's stored text; {} for anything else, with a warning if not JSON. `what` is for the log."""
    return read_object(db.to_plain_json(stored), what)


def read_object(text: str, what: str) -> dict[str, Any]:
    """The object in plain JSON text; {} for anything else, with a warning if it is not JSON."""
    try:
        value = decode(text)
    except ValueError:
        log.warning("%s holds text that is not JSON; it is read as {}", what)
        return {}
    return value if isinstance(value, dict) else {}


def stored_objects(stored: Sequence[str], to_plain_json: Callable[[str], str] | None = None) -> list[dict[str, Any] | None]:
    """The objects in the stored texts, None for each other value. All are parsed in one call: one call per text is slower."""
    try:
        values = orjson.loads("[" + ",".join(stored if to_plain_json is None else map(to_plain_json, stored)) + "]")
        if len(values) == len(stored):
            return [value if type(value) is dict else None for value in values]
    except (orjson.JSONDecodeError, TypeError):
        pass
    return [_decode_one(text if to_plain_json is None else to_plain_json(text)) for text in stored]


def _decode_one(text: str) -> dict[str, Any] | None:
    try:
        value = decode(text)
    except (ValueError, TypeError):
        return None
    return value if isinstance(value, dict) else None


def stored_part(part_id: str, stored: Any, to_plain_json: Callable[[str], str] = str) -> Part:
    """The part in the `stored_text` of its data: an object with a type. Raises UnreadableRow for anything else."""
    try:
        data = decode(to_plain_json(readable(stored)))
    except (ValueError, RecursionError):
        raise UnreadableRow(_PARTS, (part_id,), "data_json", "the text is no JSON") from None
    if not is_part(data):
        raise UnreadableRow(_PARTS, (part_id,), "data_json", "it is no part with a type")
    part: Part = data
    return part


def joined_deltas(part_id: str, pieces: Sequence[tuple[Any, Any]]) -> tuple[str, int]:
    """(the joined text, the last seq) of ordered (seq, delta) pairs, each as `stored_text`. UnreadableRow names a bad value."""
    texts, seq = [], 0
    for stored_seq, stored in pieces:
        try:
            seq = int(readable(stored_seq))
        except ValueError:
            raise UnreadableRow(_PIECES, (part_id, stored_seq), "seq", "it is no number") from None
        try:
            texts.append(unescape_text(readable(stored)))
        except ValueError:
            raise UnreadableRow(_PIECES, (part_id, seq), "delta", "it is no text") from None
    return "".join(texts), seq


def grown_part(part_id: str, data: Part, tail: str) -> Part:
    """The part with its deltas' text added. Raises UnreadableRow if no text can be added to the part."""
    if not can_grow(data):
        raise UnreadableRow(_PARTS, (part_id,), "data_json", "no text can be added to what is stored")
    return grow(data, tail)


def grown_text(part_id: str, data: Part, tail: str) -> JsonText:
    """The part with its deltas' text added, encoded to be stored. Raises UnreadableRow if that fails."""
    try:
        return encode(grown_part(part_id, data, tail), limits=ANY_SIZE)
    except InvalidValue as error:
        raise UnreadableRow(_PARTS, (part_id,), "data_json", f"it holds what is no JSON of ours ({error.path})") from None


Report = Callable[[UnreadableRow], object]
"""A function that is given the error of each part left out."""
_D, _P = deltas.c, parts.c
_id = param("row_id")
_last = bindparam("last", type_=_D.seq.type)
_upto = _D.part_id == _id, _D.seq <= _last
_READ = Statement(select(stored_text(_D.seq), stored_text(_D.delta)).where(_D.part_id == _id).order_by(_D.seq))
_PEEK = Statement(select(stored_text(_P.data_json)).where(_P.id == _id))
_DATA = Statement(select(stored_text(_P.data_json)).where(_P.id == _id).with_for_update())
_LOCK = Statement(select(_P.id).where(_P.id == _id).with_for_update())
_LAST = Statement(select(func.max(_D.seq)).where(_D.part_id == _id))
_DROP = Statement(delete(deltas).where(*_upto))
PART_ID = stored_text(_D.part_id)
"""The column to select for `part_ids`."""
_ALL = Statement(select(PART_ID).distinct())
_OF_MESSAGE = Statement(select(PART_ID).join(parts, _P.id == _D.part_id).where(_P.message_id == _id).distinct())
PARTS_WITH_DELTAS = Statement(select(PART_ID).join(parts, _P.id == _D.part_id).where(_P.session_id == _id).distinct())


def _continued(text: ColumnElement[Any]) -> ColumnElement[Any]:
    return appended_text(text, _P.data_json, select(_D.delta).where(*_upto).order_by(_D.seq))


_appendable = _P.id == _id, has_frame(_P.data_json), ~exists().where(*_upto, has_escapes(_D.delta))
_FOLD_LONG = Statement(update(parts).where(*_appendable).values(data_json=_continued(_P.data_json)), silent=True)
_REWRITE_LONG = Statement(
    update(parts)
    .where(*_appendable)
    .values(data_json=_continued(bindparam("data", type_=_P.data_json.type)), updated_at=param("at"))
)


def fold(db: StatementRunner, part_id: str) -> bool:
    """Fold one part's deltas; False if it has none. UnreadableRow: it cannot be read, and nothing is written."""
    with db.batch() as batch:
        found = Tail.ask(batch, part_id)
    with db.batch() as batch:
        return found.fold(db, batch)


@dataclass(frozen=True, slots=True)
class Tail:
    """A part and its deltas, asked for in a batch, to be folded by a later one."""

    part_id: str
    data: Pending[Row | None]
    pieces: Pending[list[Row]]

    @classmethod
    def ask(cls, batch: Batch, part_id: str, *, lock: bool = True) -> "Tail":
        """Add the statements to a batch. `lock`: the part's row, until the transaction ends."""
        return cls(part_id, batch.row(_DATA if lock else _PEEK, row_id=part_id), batch.rows(_READ, row_id=part_id))

    def fold(self, db: StatementRunner, batch: Batch) -> bool:
        """Add the writing statements to a batch. False without deltas. UnreadableRow: it cannot be read."""
        found = self.grown(db)
        if found is None:
            return False
        data, last = found
        batch.run(FOLD_PART, row_id=self.part_id, data=data)
        batch.run(_DROP, row_id=self.part_id, last=last)
        return True

    def grown(self, db: StatementRunner) -> tuple[JsonText, int] | None:
        """(the part with its deltas' text, the last seq); None without deltas. UnreadableRow: either is unreadable."""
        row, pieces = self.data.result, self.pieces.result
        if row is None or not pieces:
            return None
        text, last = joined_deltas(self.part_id, pieces)
        return grown_text(self.part_id, stored_part(self.part_id, row[0], db.to_plain_json), text), last


def has_deltas(db: StatementRunner, part_id: str) -> bool:
    """Whether a part has deltas to fold. UnreadableRow: it has one that cannot be read."""
    with db.batch() as batch:
        found = Tail.ask(batch, part_id, lock=False)
    return found.grown(db) is not None


def fold_in_database(db: StatementRunner, part_id: str, frame: JsonFrame) -> None:
    """Fold the deltas of a part with long text by an UPDATE that appends to the text inside the database, within `frame`."""
    last = _lock_part(db, part_id)
    if last is None:
        return
    if db.run(_FOLD_LONG, row_id=part_id, last=last, head=frame.head, foot=frame.foot, new_foot=frame.foot) == 0:
        fold(db, part_id)
    else:
        db.run(_DROP, row_id=part_id, last=last)


def rewrite_long(db: StatementRunner, part_id: str, frame: JsonFrame, data: JsonText, at: datetime) -> None:
    """Fold a part with long text and replace the JSON around the text, `frame`, by that of `data`, whose text is empty."""
    part = decode(data)
    last, new = _lock_part(db, part_id) or 0, JsonFrame(part, "text")
    written = 0
    if new.head == frame.head:
        values = {"data": data, "at": at, "head": frame.head, "foot": frame.foot, "new_foot": new.foot}
        written = db.run(_REWRITE_LONG, row_id=part_id, last=last, **values)
    if not written and (row := db.row(_DATA, row_id=part_id)) is not None:
        stored = stored_part(part_id, row[0], db.to_plain_json)
        tail, _ = joined_deltas(part_id, db.rows(_READ, row_id=part_id))
        grown = grown_text(part_id, {**part, "text": stored.get("text")}, tail)
        db.run(REWRITE_PART, row_id=part_id, data=grown, new_type=part["type"], new_tool_state=None, at=at)
    db.run(_DROP, row_id=part_id, last=last)


def _lock_part(db: StatementRunner, part_id: str) -> int | None:
    """Lock the part against other folds until the transaction ends; the last seq of its deltas, None if it has none."""
    db.row(_LOCK, row_id=part_id)
    row = db.row(_LAST, row_id=part_id)
    return None if row is None else row[0]


def fold_message(db: StatementRunner, message_id: str) -> None:
    """Fold all parts of a message. UnreadableRow names the first that cannot be read."""
    for part_id in part_ids(db.rows(_OF_MESSAGE, row_id=message_id), log_left_unfolded):
        fold(db, part_id)


def fold_session(db: StatementRunner, session_id: str) -> None:
    """Fold all parts of a session. Unreadable ones are logged and left unchanged."""
    fold_each(db, part_ids(db.rows(PARTS_WITH_DELTAS, row_id=session_id), log_left_unfolded), log_left_unfolded)


def fold_all(db: StatementRunner) -> None:
    """Fold all parts of the database. Unreadable ones are logged and left unchanged."""
    fold_each(db, part_ids(db.rows(_ALL), log_left_unfolded), log_left_unfolded)


def fold_each(db: StatementRunner, part_ids: Iterable[str], report: Report) -> int:
    """Fold these parts; the number folded. Unreadable ones are reported and left unchanged."""
    folded = 0
    for part_id in part_ids:
        try:
            folded += fold(db, part_id)
        except UnreadableRow as error:
            report(error)
    return folded


def part_ids(rows: Iterable[tuple[Any]], report: Report) -> Iterator[str]:
    """The ids in rows of PART_ID. Values that are not text are reported."""
    for (stored,) in rows:
        try:
            yield readable(stored)
        except ValueError:
            report(UnreadableRow("chat_part_deltas", (stored,), "part_id", "it is no text"))


def log_left_unfolded(error: UnreadableRow) -> None:
    """Log a part that is left unfolded."""
    log.warning("text that waits for a part is left as it is: %s", error)
