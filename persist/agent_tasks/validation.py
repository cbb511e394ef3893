"""Checks of the arguments of agents' tasks, made before anything is written."""

from typing import Any

from persist.agent_tasks.schemas import Piece
from persist.db.schema.column_types import LABEL_BYTES
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_list
from persist.db.values.escaping import utf8_size
from persist.errors import InvalidValue, PayloadTooLarge

_MAX = 2**63 - 1


def label_of(work: UnitOfWork, path: str, value: object, *, empty: bool = False) -> str:
    """The label, of a size that an index takes."""
    text = work.label(path, value, empty=empty)
    if (size := utf8_size(text)) > LABEL_BYTES:
        raise PayloadTooLarge(path, size, LABEL_BYTES)
    return text


def checked_bytes(path: str, value: object) -> bytes:
    """The bytes."""
    if not isinstance(value, bytes):
        raise InvalidValue(path, f"expected bytes, got {type(value).__name__}.")
    return value


def checked_pieces(work: UnitOfWork, value: object) -> dict[tuple[str, int, int], bytes]:
    """The data of each piece by kind, position and part. Raises InvalidValue for two pieces in one place."""
    found: dict[tuple[str, int, int], bytes] = {}
    for index, piece in enumerate(check_list("pieces", value)):
        path = f"pieces[{index}]"
        if not isinstance(piece, Piece):
            raise InvalidValue(path, f"expected a Piece, got {type(piece).__name__}.")
        kind = label_of(work, f"{path}.kind", piece.kind)
        place = (kind, _whole(f"{path}.position", piece.position, 0), _whole(f"{path}.part", piece.part, -1))
        if place in found:
            raise InvalidValue(path, "another piece is in the same place.")
        found[place] = checked_bytes(f"{path}.data", piece.data)
    return found


def _whole(path: str, value: Any, least: int) -> int:
    if type(value) is not int or not least <= value <= _MAX:
        raise InvalidValue(path, f"expected a whole number, {least} or more.")
    return value
