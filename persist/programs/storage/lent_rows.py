"""What a row of a subagent's file may be. Pure: the file is hostile input, and a reason never repeats what it says."""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from persist.db.dialects.untrusted_files import Odd
from persist.db.values.escaping import utf8_size
from persist.programs.schemas import BindingKind

_PLAIN = re.compile(r"\w[\w.-]*")
_LONGEST_NAME = 600
_SHOWN = 80


class LentBinding(NamedTuple):
    """A row of bindings that may be bound."""

    name: str
    kind: BindingKind
    value: str | None
    source_statement: str | None
    attachment_path: str | None


def digest(*cells: Any) -> str:
    """What tells whether cells of a row were changed: 64 hexadecimal digits."""
    return sha256(
        repr(tuple(None if cell is None else str(cell) for cell in cells)).encode("utf-8", "backslashreplace")
    ).hexdigest()


def shown_name(cell: Any) -> str | None:
    """What a report says of a name: short and printable, or nothing."""
    return cell if type(cell) is str and len(cell) <= _SHOWN and cell.isprintable() else None


def plain_name(cell: Any) -> bool:
    """Whether a cell names a value: letters, digits, `_`, and after the first also `.` and `-`; at most 600 bytes."""
    return type(cell) is str and _PLAIN.fullmatch(cell) is not None and utf8_size(cell) <= _LONGEST_NAME


def checked_binding(row: Sequence[Any], frame: int | None) -> LentBinding | str:
    """The binding in a row of the file, or the reason why it is none of the frame."""
    scope, name, execution_id, kind, value, source, path = row
    if scope != "":
        return "it is not a row of this run."
    if not plain_name(name):
        return "its name is not plain: letters, digits, _, . and -."
    if type(execution_id) is not type(frame) or execution_id != frame:
        return "it is in a frame that is not the subagent's."
    if type(kind) is not str or kind not in BindingKind._value2member_map_:
        return f"its kind is none of {', '.join(BindingKind)}."
    for column, cell in (("value", value), ("source_statement", source), ("attachment_path", path)):
        reason = no_text(cell)
        if reason is not None:
            return f"{column}: {reason}"
    return LentBinding(name, BindingKind(kind), value, source, path)


def no_text(cell: Any) -> str | None:
    """Why a cell is neither text nor NULL."""
    if cell is None or type(cell) is str:
        return None
    return cell.reason if isinstance(cell, Odd) else "it is a number, and not text."
