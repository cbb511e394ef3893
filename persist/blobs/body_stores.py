"""Where the bodies of blobs may be kept instead of the database: in a folder, or wherever fsspec reaches, such as S3."""

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

from persist.blobs.content import ADVICE, PIECE, checked_digest
from persist.db.files import check_path, files, make_private, replace, sync_folder, typed, written_whole
from persist.errors import BlobUnreadable, InvalidValue, PersistError, Unavailable, shown

_PART = ".part"
_DATABASES = "databases"
"""Where the databases are registered that keep bodies in a place."""
_ENTRY = "[0-9a-f]" * 32


@runtime_checkable
class BlobStore(Protocol):
    """Keeps the bodies of blobs under their digests, while their rows stay in the database. Its methods may run in any thread.

    A body is put before the transaction commits that adds its row, and deleted after the one that deletes the row.
    """

    def put(self, sha256: str, pieces: Iterable[bytes]) -> None:
        """Store a body, wholly or not at all. One that is there already may be replaced: it is the same."""

    def open(self, sha256: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `start` up to but not including `end`, in pieces. Raises BlobUnreadable without a body."""

    def exists(self, sha256: str) -> bool:
        """Whether the whole body is there."""

    def delete(self, sha256: str) -> None:
        """Delete a body and what an interrupted `put` left of it. Without one nothing happens."""

    def stored(self) -> Iterable[tuple[str, datetime]]:
        """The digests of bodies and of parts of bodies, with the time when each was written."""


Bodies = str | os.PathLike[str] | BlobStore
"""Where bodies are kept: a path, a URL, or a store."""


def _missing(sha256: str, place: object) -> BlobUnreadable:
    return BlobUnreadable(sha256, f"its body is missing in {place}; {ADVICE}")


class FolderBlobStore:
    """Bodies as files in a folder, which only their owner may read: `ab/cd/<sha256>`, renamed into place when complete."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(check_path("path", path)))

    def __repr__(self) -> str:
        return f"FolderBlobStore({str(self.path)!r})"

    def put(self, sha256: str, pieces: Iterable[bytes]) -> None:
        self._write(self._file(sha256), sha256, pieces)

    def _write(self, target: Path, part: str, pieces: Iterable[bytes]) -> None:
        with files(target):
            make_private(target.parent)
            temporary = target.with_name(f"{part}-{secrets.token_hex(4)}{_PART}")
            with written_whole(temporary, partial(replace, target=target)) as file:
                file.writelines(pieces)
            sync_folder(target.parent)

    def open(self, sha256: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        target = self._file(sha256)
        with _opened(sha256, target):
            yield from _range(open(target, "rb"), start, end)  # noqa: SIM115  # closed there

    def exists(self, sha256: str) -> bool:
        target = self._file(sha256)
        with files(target):
            return target.is_file()

    def size(self, sha256: str) -> int | None:
        target = self._file(sha256)
        with files(target):
            return target.stat().st_size if target.is_file() else None

    def delete(self, sha256: str) -> None:
        target = self._file(sha256)
        with files(target):
            for file in (target, *target.parent.glob(f"{sha256}-*{_PART}")):
                file.unlink(missing_ok=True)

    def stored(self) -> Iterable[tuple[str, datetime]]:
        with files(self.path):
            for file in sorted(self.path.glob("[0-9a-f][0-9a-f]/[0-9a-f][0-9a-f]/*")):
                digest = file.name.partition("-")[0]
                with suppress(FileNotFoundError, InvalidValue):  # deleted by another process; a file of somebody else's
                    written = file.stat().st_mtime
                    yield checked_digest("sha256", digest), datetime.fromtimestamp(written, UTC)

    def registered(self) -> Mapping[str, str]:
        folder = self.path / _DATABASES
        with files(folder):
            return {file.name: file.read_text("utf-8", "replace") for file in folder.glob(_ENTRY)}

    def register(self, name: str, text: str) -> None:
        self._write(self.path / _DATABASES / name, f".{name}", [text.encode()])

    def unregister(self, name: str) -> None:
        with files(self.path):
            (self.path / _DATABASES / name).unlink(missing_ok=True)

    def is_empty(self) -> bool:
        with files(self.path):
            return not self.path.is_dir() or not any(self.path.iterdir())

    def _file(self, sha256: str) -> Path:
        digest = checked_digest("sha256", sha256)
        return self.path / digest[:2] / digest[2:4] / digest


class FsspecBlobStore:
    """Bodies wherever fsspec reaches: `s3://bucket/prefix`, `gs://…`, `memory://…`. Needs the extra `fsspec`.

    `options` go to the file system, such as its endpoint. Credentials come from the environment, as its own library says.
    """

    def __init__(self, url: str, **options: Any) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise InvalidValue("blobs", "fsspec is not installed; install agent-persist[fsspec].") from error
        try:
            self._system, root = url_to_fs(url, use_listings_cache=False, **options)
        except (ImportError, ValueError) as error:  # the library of a protocol is missing, or there is no such protocol
            raise InvalidValue("blobs", f"fsspec cannot use {shown(_without_secrets(url))}: {error}.") from error
        self._root, self._shown = root.rstrip("/"), _without_secrets(url)

    def __repr__(self) -> str:
        return f"FsspecBlobStore({self._shown!r})"

    def put(self, sha256: str, pieces: Iterable[bytes]) -> None:
        place = self._place(sha256)
        with self._reached(sha256):
            self._system.makedirs(place.rpartition("/")[0], exist_ok=True)
            was_there = self._system.isfile(place)
            file = self._system.open(place, "wb", autocommit=False)
            try:
                for piece in pieces:
                    file.write(piece)
                file.close()
                file.commit()
            except BaseException:
                with suppress(Exception):
                    file.discard()
                with suppress(Exception):
                    if not was_there:  # some file systems know no files that appear when they are complete
                        self._system.rm_file(place)
                raise

    def open(self, sha256: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        with self._reached(sha256):
            yield from _range(self._system.open(self._place(sha256), "rb"), start, end)

    def exists(self, sha256: str) -> bool:
        with self._reached(sha256):
            return bool(self._system.isfile(self._place(sha256)))

    def size(self, sha256: str) -> int | None:
        with self._reached(sha256), suppress(FileNotFoundError):
            return int(self._system.info(self._place(sha256))["size"])
        return None

    def delete(self, sha256: str) -> None:
        with self._reached(sha256), suppress(FileNotFoundError):
            self._system.rm_file(self._place(sha256))

    def stored(self) -> Iterable[tuple[str, datetime]]:
        with self._reached(""):
            found = self._system.find(self._root, detail=True) if self._system.exists(self._root) else {}
            for place in sorted(found):
                with suppress(FileNotFoundError, InvalidValue):  # deleted by another process; a file of somebody else's
                    digest = checked_digest("sha256", place.rpartition("/")[2])
                    if place.endswith(self._place(digest)):  # else it is in the folder of somebody else, such as a tenant
                        yield digest, self._system.modified(place)

    def registered(self) -> Mapping[str, str]:
        folder = f"{self._root}/{_DATABASES}"
        with self._reached(""):
            places = self._system.ls(folder, detail=False) if self._system.exists(folder) else []
            names = [place.rpartition("/")[2] for place in places]
            return {name: self._system.cat_file(f"{folder}/{name}").decode("utf-8", "replace") for name in names if name}

    def register(self, name: str, text: str) -> None:
        folder = f"{self._root}/{_DATABASES}"
        with self._reached(""):
            self._system.makedirs(folder, exist_ok=True)
            self._system.pipe_file(f"{folder}/{name}", text.encode())

    def unregister(self, name: str) -> None:
        with self._reached(""), suppress(FileNotFoundError):
            self._system.rm_file(f"{self._root}/{_DATABASES}/{name}")

    def is_empty(self) -> bool:
        with self._reached(""):
            return not self._system.exists(self._root) or not self._system.ls(self._root, detail=False)

    def _place(self, sha256: str) -> str:
        digest = checked_digest("sha256", sha256)
        return f"{self._root}/{digest[:2]}/{digest}"

    @contextmanager
    def _reached(self, sha256: str) -> Iterator[None]:
        """Turn errors of a file system's library into errors of persist."""
        try:
            yield
        except (PersistError, GeneratorExit):
            raise
        except FileNotFoundError as error:
            raise _missing(sha256, self._shown) from error
        except OSError as error:
            raise typed(error, Path(self._shown)) from error
        except Exception as error:
            raise Unavailable(f"{self._shown}: {type(error).__name__}: {error}") from error


@contextmanager
def _opened(sha256: str, path: Path) -> Iterator[None]:
    try:
        with files(path):
            yield
    except PersistError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            raise _missing(sha256, path) from error
        raise


def _range(file: Any, start: int, end: int | None) -> Iterator[bytes]:
    with file:
        file.seek(start)
        left = None if end is None else end - start
        while (left is None or left > 0) and (piece := file.read(PIECE if left is None else min(PIECE, left))):
            left = None if left is None else left - len(piece)
            yield piece


def _without_secrets(url: str) -> str:
    """The URL for messages, without a password, and without parameters, which may be one."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _path_in(path: str) -> str:
    """The path of a file:// URL: on Windows a drive follows the first slash."""
    path = unquote(path)
    return path[1:] if os.name == "nt" and re.match(r"/[A-Za-z]:", path) else path


def body_store(value: object) -> BlobStore | None:
    """The store that an argument or a setting names: a path, a URL, or a store itself; None keeps bodies in the database."""
    if value is None or value == "":
        return None
    if isinstance(value, str) and "://" in value:
        parts = urlsplit(value)
        return FolderBlobStore(_path_in(parts.path)) if parts.scheme == "file" else FsspecBlobStore(value)
    if isinstance(value, str | os.PathLike):
        return FolderBlobStore(value)
    if isinstance(value, BlobStore):
        return value
    raise InvalidValue("blobs", f"expected a path, a URL or a BlobStore, got {type(value).__name__}.")
