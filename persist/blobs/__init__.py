"""Blobs: files and other large bytes, stored once under their SHA-256, and named by rows of other domains."""

from typing import TYPE_CHECKING

from persist.lazy_imports import lazy_names

if TYPE_CHECKING:
    from persist.blobs.body_stores import BlobStore as BlobStore
    from persist.blobs.body_stores import FolderBlobStore as FolderBlobStore
    from persist.blobs.body_stores import FsspecBlobStore as FsspecBlobStore
    from persist.blobs.repository import BlobReader as BlobReader
    from persist.blobs.schemas import Blob as Blob
lazy_names(globals())
