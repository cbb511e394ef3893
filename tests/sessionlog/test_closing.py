"""When lines reach the disk, and the end of a writer."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from persist.errors import Closed, Unavailable
from tests.sessionlog.scenes import lines, log_path, text, writer


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of every file when it is brought to the disk; folders are left out."""
    sizes: list[int] = []

    def fsync(descriptor: int) -> None:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode):
            sizes.append(found.st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    return sizes


def test_never(home: Path, synced: list[int]) -> None:
    with writer(home, fsync="never") as log:
        log.feed(text("a"))
    assert synced == []


def test_after_every_batch(home: Path, synced: list[int]) -> None:
    with writer(home, fsync="batch") as log:
        log.feed_many([text("a"), text("b")])
        first = log_path(home).stat().st_size
        log.finalize()
        assert synced == [first, log_path(home).stat().st_size]
    assert len(synced) == 2


def test_the_names_of_a_new_log_reach_the_disk_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[int] = []

    def fsync(descriptor: int) -> None:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            folders.append(found.st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    log = writer(home, fsync="batch")
    log.feed(text("a"))
    log.feed(text("b"))
    slug = log_path(home).parent
    assert folders == [folder.stat().st_ino for folder in (slug, slug.parent, home)]


def test_on_close(home: Path, synced: list[int]) -> None:
    with writer(home, fsync="close") as log:
        log.feed_many([text("a"), {"type": "session", "id": "s2"}, text("b")])
        assert synced == []
    assert sorted(synced) == sorted(log_path(home, session).stat().st_size for session in ("s1", "s2"))
    log.close()
    assert len(synced) == 2


def test_the_disk_may_refuse_on_close(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", refuse)
    for strict in (False, True):
        log = writer(home, fsync="close", strict=strict)
        log.feed(text("a"))
        if strict:
            with pytest.raises(Unavailable):
                log.close()
        else:
            log.close()
            assert isinstance(log.error, Unavailable)


@pytest.mark.parametrize("strict", [False, True])
def test_a_closed_writer_takes_nothing(home: Path, strict: bool) -> None:
    log = writer(home, strict=strict)
    log.feed(text("a"))
    log.close()
    log.close()
    late: list[Callable[[], object]] = [
        lambda: log.feed(text("b")),
        lambda: log.feed_many([]),
        lambda: log.finalize(),
        lambda: log.finalize_with_fallback("s1"),
    ]
    for call_late in late:
        with pytest.raises(Closed):
            call_late()
    assert len(lines(home)) == 1


def test_an_exception_closes_too(home: Path) -> None:
    log = writer(home)
    with pytest.raises(KeyError), log:
        raise KeyError
    with pytest.raises(Closed):
        log.feed(text("a"))
