"""Files of parts. A large data URL leaves the row of its part and becomes a blob; readers get the same text back.

The stored part has a reference in place of the URL, and the state `persist-blob`, which parts with files do not have otherwise. A
reference counts only if the part's row in chat_part_blobs names the same blob: a part that looks like one is the text it is.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import bindparam, exists, select

from persist.blobs.models import blobs
from persist.blobs.repository import BLOB, NewBlob, read_bodies
from persist.blobs.schemas import Blob
from persist.chat.models import part_blobs, parts
from persist.chat.reducer.chunks import ChunkType
from persist.chat.reducer.parts import Part
from persist.chat.schemas import Files
from persist.db.changes.batch import StatementRunner
from persist.db.expressions.upsert import insert_where
from persist.db.schema.column_types import among_labels
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.errors import InvalidValue

_P, _F = parts.c, part_blobs.c
STORED = "persist-blob"
"""The state of a stored part whose file is a blob."""
_SCHEME = "persist-blob:"
_REFERENCE = re.compile(rf"({_SCHEME}([0-9a-f]{{64}})):(data:[ -~]*;base64)")
_HEAD = re.compile(r"data:[ -~]{0,255};base64")
_MEDIA_TYPE = re.compile(r"[!-~]{1,255}")
FILE_TYPES = (ChunkType.FILE.value, ChunkType.REASONING_FILE.value)
"""Types of parts whose URL may name a stored file."""
_OCTETS = "application/octet-stream"
NAME_BLOB = Statement(insert_where(part_blobs, _P.id == bindparam("named_by", type_=_P.id.type), {"part_id": _P.id}, of=parts))
"""Let a part name the blob of its file, if the part was written."""
_NAMED = Statement(
    select(_P.message_id, _P.index, _F.sha256).join(parts, _P.id == _F.part_id).where(among_labels(_P.message_id, "messages")),
    unreadable=OnUnreadable.LEAVE_OUT,
)
_in_session = exists().where(_F.sha256 == blobs.c.sha256, _F.part_id == _P.id, _P.session_id == param("row_id"))
_OF_SESSION = Statement(select(*BLOB.columns).where(blobs.c.sha256 == param("digest"), _in_session))
_OWN = Statement(
    select(_F.sha256, _P.data_json)
    .join(parts, _P.id == _F.part_id)
    .where(among_labels(_F.sha256, "digests"), _P.session_id == param("row_id")),
    unreadable=OnUnreadable.LEAVE_OUT,
)
_HEX = 64
Key = tuple[str, int]


class StoredFile(NamedTuple):
    """A part as it is stored, whose state says that its file is a blob. Reading changes it in place."""

    message_id: str
    place: int
    data: Part


def is_reference(part: object) -> bool:
    """Whether a given part is a file whose URL is a reference, real or forged."""
    if not isinstance(part, dict) or part.get("type") not in FILE_TYPES:
        return False
    url = part.get("url")
    return isinstance(url, str) and url[: len(_SCHEME)].lower() == _SCHEME


def with_own_files(work: UnitOfWork, session_id: str, given: Sequence[Any]) -> Sequence[Any]:
    """The parts, with data URLs for references to files of the session, as browsers that were shown them post; others stay."""
    if not any(map(is_reference, given)):
        return given
    named = [part["url"].removeprefix(_SCHEME) for part in given if is_reference(part)]
    heads = {}
    for digest, data in work.rows(_OWN, row_id=session_id, digests=[name for name in named if len(name) == _HEX]):
        found = _found(data) if isinstance(data, dict) else None
        if found is not None and found[2] == digest:
            heads[digest] = found[3]
    bodies = read_bodies(work, work.runtime, heads) if heads else {}
    return [
        {**part, "url": _data_url(heads[name], bodies[name])}
        if is_reference(part) and (name := part["url"].removeprefix(_SCHEME)) in heads
        else part
        for part in given
    ]


def refuse_reference(part: Mapping[str, Any], path: str) -> None:
    """Raise InvalidValue for a file whose URL is a reference: only persist writes them, for the bytes that it was given."""
    if part.get("type") in FILE_TYPES and is_reference(part):
        raise InvalidValue(
            f"{path}.url".lstrip("."), f"a URL that begins with {_SCHEME} stands for a file that is stored already."
        )


def taken_out(part: Part, runtime: Runtime) -> tuple[Part, NewBlob | None]:
    """The part to store, and the blob of its file if that is larger than the setting `inline_file_bytes`.

    A URL stays where it is if its text could not be made again from the bytes, or if it is too long for a part anyway.
    """
    if part.get("type") not in FILE_TYPES:
        return part, None
    url, smallest = part.get("url"), runtime.settings.inline_file_bytes
    if not isinstance(url, str) or not smallest < len(url) <= runtime.limits.max_bytes or "state" in part:
        return part, None
    head, _, text = url.partition(",")
    if _HEAD.fullmatch(head) is None:
        return part, None
    try:
        body = b64decode(text, validate=True)
    except (Error, ValueError):
        return part, None
    if len(body) <= smallest or b64encode(body).decode() != text:
        return part, None
    blob = NewBlob.of(body, _media_type(part, head), runtime.blob_store)
    return {**part, "url": f"{_SCHEME}{blob.sha256}:{head}", "state": STORED}, blob


def _data_url(head: str, body: bytes) -> str:
    return f"{head},{b64encode(body).decode()}"


def _media_type(part: Part, head: str) -> str:
    for said in (head[len("data:") : -len(";base64")], part.get("mediaType")):
        if isinstance(said, str) and _MEDIA_TYPE.fullmatch(said):
            return said
    return _OCTETS


def referred(data: Part) -> str | None:
    """The digest of the blob that a stored part seems to refer to."""
    found = _found(data)
    return None if found is None else found[2]


def put_back(db: StatementRunner, runtime: Runtime, stored: Sequence[StoredFile], files: Files = Files.DATA) -> None:
    """Turn stored parts into the given ones, or with `Files.REFERENCE` into names of blobs. Raises BlobUnreadable."""
    named = names_of(db, {one.message_id for one in stored})
    real = [one for one in stored if named.get((one.message_id, one.place)) == referred(one.data) is not None]
    bodies = read_bodies(db, runtime, [str(referred(one.data)) for one in real]) if real and files is Files.DATA else {}
    for _, _, data in real:
        found = _found(data)
        assert found is not None
        url, digest, head = found[1], found[2], found[3]
        del data["state"]
        data["url"] = url if files is Files.REFERENCE else _data_url(head, bodies[digest])


def names_of(db: StatementRunner, message_ids: Iterable[str]) -> dict[Key, str]:
    """The blobs that parts of these messages name, by message and index."""
    return {(message, index): digest for message, index, digest in db.rows(_NAMED, messages=sorted(message_ids))}


def blob_of_session(work: UnitOfWork, session_id: str, digest: str) -> Blob:
    """The blob, if a part of a message of the session names it. Raises NotFound."""
    return BLOB.found(work.row(_OF_SESSION, row_id=session_id, digest=digest), "file", digest)


def _found(data: Part) -> re.Match[str] | None:
    url = data.get("url")
    if data.get("state") != STORED or data.get("type") not in FILE_TYPES or not isinstance(url, str):
        return None
    return _REFERENCE.fullmatch(url)
