"""`tx.app_sessions.artifacts`: files of sessions and of users, in numbered versions."""

import re
from collections.abc import Mapping
from functools import cache

from sqlalchemy import and_, bindparam, delete, exists, or_, select

from persist.blobs.repository import OCTETS, NewBlob, add_named, add_outside, read_bodies
from persist.db.expressions.upsert import insert_where, merge
from persist.db.statements.prepared import Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.arguments import optional_count
from persist.errors import InvalidValue
from persist.framework_state.app_sessions import schemas
from persist.framework_state.app_sessions.models import artifact_blobs, artifact_versions, artifacts
from persist.framework_state.app_sessions.schemas import Artifact, ArtifactKey, ArtifactVersion

_A, _V, _B = artifacts.c, artifact_versions.c, artifact_blobs.c
_KEY = ("app_name", "user_id", "session_id", "filename")
_VERSION = Values(ArtifactVersion, artifact_versions, metadata=_V.metadata_text)
_MEDIA_TYPE = re.compile(r"[!-~]{1,255}")
_BYTES = (bytes, bytearray, memoryview)
_of_key = tuple(_A[name] == bindparam(f"key_{name}", type_=_A[name].type) for name in _KEY)
_row_id = select(_A.id).where(*_of_key).scalar_subquery()
_of_artifact = _V.artifact_id == _row_id

# The row of the artifact counts its versions. It stays locked until the transaction ends, so each writer gets its own number.
_COUNT = Statement(merge(artifacts, *_KEY, versions="sum", updated_at="new").returning(_A.versions))
_ADD = Statement(
    insert_where(artifact_versions, and_(*_of_key), {"artifact_id": _A.id, "version": _A.versions - 1}, of=artifacts)
)
_NAME_BLOB = Statement(
    insert_where(artifact_blobs, and_(*_of_key), {"artifact_id": _A.id, "version": _A.versions - 1}, of=artifacts)
)
_LOCK = Statement(select(_A.id).where(*_of_key).with_for_update())
_DELETE_BLOBS = Statement(delete(artifact_blobs).where(_B.artifact_id == _row_id))
_DELETE_VERSIONS = Statement(delete(artifact_versions).where(_of_artifact))
_DELETE = Statement(delete(artifacts).where(*_of_key, ~exists().where(_V.artifact_id == _A.id)))
"""One that another transaction has made in this very moment stays: it comes after."""
_VERSIONS = Statement(select(*_VERSION.columns).where(_of_artifact).order_by(_V.version))
_NAMES = Statement(
    select(_A.session_id, _A.filename)
    .where(
        _A.app_name == param("app_name"),
        _A.user_id == param("user_id"),
        or_(_A.session_id == "", _A.session_id == bindparam("in_session", type_=_A.session_id.type)),
    )
    .order_by(_A.session_id, _A.filename)
)


@cache
def _loading(latest: bool) -> Statement:
    its_blob = and_(_B.artifact_id == _V.artifact_id, _B.version == _V.version)
    query = select(*_VERSION.columns, _V.part, _V.data, _B.sha256)
    query = query.select_from(artifact_versions.outerjoin(artifact_blobs, its_blob)).where(_of_artifact)
    if latest:
        return Statement(query.order_by(_V.version.desc()).limit(1))
    return Statement(query.where(_V.version == param("number")))


class AppArtifacts(Repository[F]):
    """`tx.app_sessions.artifacts`."""

    @writes
    def save(
        self, key: ArtifactKey, part: str, *, data: bytes | None = None, mime_type: str | None = None, metadata: str = "{}"
    ) -> int:
        """Add a version and return its number: 0, 1, 2 and so on. Versions saved at the same time get different numbers.

        `part` and `metadata` are JSON text; `data` are the bytes that belong to the part. If they are more than the setting
        `inline_file_bytes`, they become a blob.
        """
        work = self._work
        names = schemas.artifact_key(work, key)
        if data is not None and not isinstance(data, _BYTES):
            raise InvalidValue("data", f"expected bytes, got {type(data).__name__}.")
        now, body = work.now(), None if data is None else bytes(data)
        blob = None
        if body is not None and len(body) > work.runtime.settings.inline_file_bytes:
            blob = NewBlob.of(body, _media_type(mime_type), work.runtime.blob_store)
        version = {
            "created_at": now,
            "mime_type": None if mime_type is None else work.body("mime_type", mime_type),
            "metadata_text": schemas.json_text(work, "metadata", metadata),
            "part": schemas.json_text(work, "part", part),
            "data": body if blob is None else None,
        }
        artifact = {"id": work.runtime.ids.mint("art"), **names, "versions": 1, "created_at": now, "updated_at": now}
        with work.batch(last=blob is None or blob.store is None) as batch:
            counted = batch.returned(_COUNT, **artifact)
            batch.run(_ADD, **_keyed(names), **version)
            added = [] if blob is None else add_named(batch, [blob], now)
            if blob is not None:
                batch.run(_NAME_BLOB, **_keyed(names), sha256=blob.sha256)
        add_outside(added)
        assert counted.result is not None
        number: int = counted.result[0] - 1
        return number

    @reads
    def load(self, key: ArtifactKey, version: int | None = None) -> Artifact | None:
        """A version of an artifact, by default the latest; None without one. Raises BlobUnreadable for missing or wrong bytes."""
        work = self._work
        names = _keyed(schemas.artifact_key(work, key))
        number = optional_count("version", version)
        row = work.row(_loading(True), **names) if number is None else work.row(_loading(False), **names, number=number)
        if row is None:
            return None
        *fields, part, data, digest = row
        if digest is not None:
            data = read_bodies(work, work.runtime, [digest])[digest]
        return Artifact(_VERSION(fields), part, None if data is None else bytes(data))

    @reads
    def versions(self, key: ArtifactKey) -> list[ArtifactVersion]:
        """The versions of an artifact without their contents, oldest first."""
        rows = self._work.rows(_VERSIONS, **_keyed(schemas.artifact_key(self._work, key)))
        return [_VERSION(row) for row in rows]

    @reads
    def names(self, app_name: str, user_id: str, session_id: str | None = None) -> list[ArtifactKey]:
        """The artifacts of a user, and of a session of the user, if given."""
        names = schemas.names(self._work, app_name=app_name, user_id=user_id)
        in_session = "" if session_id is None else self._work.label("session_id", session_id)
        rows = self._work.rows(_NAMES, **names, in_session=in_session)
        return [ArtifactKey(app_name, user_id, session or None, filename) for session, filename in rows]

    @writes
    def delete(self, key: ArtifactKey) -> bool:
        """Delete an artifact with all its versions; False for an unknown one."""
        names = _keyed(schemas.artifact_key(self._work, key))
        with self._work.batch(last=True) as batch:
            batch.lock(_LOCK, **names)
            batch.run(_DELETE_BLOBS, **names)
            batch.run(_DELETE_VERSIONS, **names)
            deleted = batch.run(_DELETE, **names)
        return deleted.result == 1


def _keyed(names: Mapping[str, str]) -> dict[str, str]:
    return {f"key_{name}": text for name, text in names.items()}


def _media_type(mime_type: object) -> str:
    """The media type of a blob; one that could not stand in a header is left out."""
    return mime_type if isinstance(mime_type, str) and _MEDIA_TYPE.fullmatch(mime_type) else OCTETS
