"""Copies blobs: those of a database into one that is rebuilt from its event log, and bodies that are outside of a database."""

from sqlalchemy import select, true

from persist.app_sessions.models import artifact_blobs, artifact_versions
from persist.blobs.bodies import ADD_PIECE, outside_of
from persist.blobs.body_stores import BlobStore
from persist.blobs.models import blobs, pieces
from persist.chat.models import part_blobs, parts
from persist.chat.storage.files import NAME_BLOB
from persist.db.expressions.upsert import insert_missing
from persist.db.schema.arrays import among_labels
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.row_chunks import chunks
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork

_ROWS = 200
_LINKS = Statement(select(part_blobs.c.part_id, part_blobs.c.sha256).order_by(part_blobs.c.part_id))
_THERE = Statement(select(parts.c.id).where(among_labels(parts.c.id, "ids")))
_F, _V = artifact_blobs.c, artifact_versions.c
_OF_ARTIFACTS = Statement(select(_F.artifact_id, _F.version, _F.sha256).order_by(_F.artifact_id, _F.version))
_VERSIONS = Statement(select(_V.artifact_id, _V.version).where(among_labels(_V.artifact_id, "ids")))
_NAME_OF_ARTIFACT = Statement(insert_missing(artifact_blobs, "artifact_id", "version"))
_ALL = Statement(select(blobs.c.sha256).order_by(blobs.c.sha256))
_OUTSIDE = Statement(select(blobs.c.sha256).where(blobs.c.outside.is_(true())).order_by(blobs.c.sha256))
_BLOB = Statement(select(blobs).where(blobs.c.sha256 == param("digest")))
_PIECES = Statement(select(pieces).where(pieces.c.sha256 == param("digest")).order_by(pieces.c.position))
_ADD = Statement(insert_missing(blobs, "sha256"))


def copy_blobs(source: UnitOfWork, target: UnitOfWork, *, unnamed: bool) -> None:
    """Copy the blobs that parts and artifacts in the target name, and let them name these; `unnamed`: all others, too."""
    for links in chunks(source, _LINKS, _ROWS):
        there = {id for (id,) in target.rows(_THERE, ids=[part_id for part_id, _ in links])}
        for part_id, digest in links:
            if part_id in there:
                _copy(source, target, digest)
                target.run(NAME_BLOB, named_by=part_id, sha256=digest)
    for rows in chunks(source, _OF_ARTIFACTS, _ROWS):
        versions = {tuple(row) for row in target.rows(_VERSIONS, ids=sorted({artifact_id for artifact_id, *_ in rows}))}
        for artifact_id, version, digest in rows:
            if (artifact_id, version) in versions:
                _copy(source, target, digest)
                target.run(_NAME_OF_ARTIFACT, artifact_id=artifact_id, version=version, sha256=digest)
    if unnamed:
        for digests in chunks(source, _ALL, _ROWS):
            for (digest,) in digests:
                _copy(source, target, digest)


def _copy(source: UnitOfWork, target: UnitOfWork, digest: str) -> None:
    row = source.row(_BLOB, digest=digest)
    if row is None or not target.run(_ADD, **dict(zip(blobs.columns.keys(), row, strict=True))):
        return
    for found in chunks(source, _PIECES, 1, digest=digest):
        for piece in found:
            target.run(ADD_PIECE, **dict(zip(pieces.columns.keys(), piece, strict=True)))


def copy_bodies(source: UnitOfWork, target: Runtime) -> None:
    """Copy bodies that are outside of the source's database to where the target keeps such bodies, if it has such a place."""
    there: BlobStore | None = target.blob_store
    if there is None:
        return
    for digests in chunks(source, _OUTSIDE, _ROWS):
        for (digest,) in digests:
            if not there.exists(digest):
                there.put(digest, outside_of(source.runtime, digest).open(digest))
