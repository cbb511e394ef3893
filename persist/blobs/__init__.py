"""Blobs: files and other large bytes, stored once under the SHA-256 of what they hold, and named by rows of other domains."""

from persist.lazy_imports import lazy_names

with lazy_names(globals()):
    from persist.blobs.body_stores import BlobStore, FolderBlobStore, FsspecBlobStore
    from persist.blobs.reader import BlobReader
    from persist.blobs.schemas import Blob

__all__ = ["Blob", "BlobReader", "BlobStore", "FolderBlobStore", "FsspecBlobStore"]
