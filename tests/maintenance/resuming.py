"""Resumable copies that tests interrupt and continue."""

from collections.abc import Callable
from typing import Any

import pytest

from persist import Store
from persist.maintenance import copy_resumably
from tests.maintenance.moving import Pair, checksums, opened

Progress = Callable[[str, int, int], object]


class StoppedError(Exception):
    """What interrupts a copy in these tests."""


def stopping_at(table: str, when: str = "copied") -> Progress:
    """Stops a copy at the first row of a table that was copied, or that was compared."""

    def progress(name: str, done: int, total: int) -> None:
        if name == table and (when == "copied" or done > total // 2):
            raise StoppedError

    return progress


def interrupted(pair: Pair, progress: Progress, **options: Any) -> None:
    with Store.open(pair[0]) as source, pytest.raises(StoppedError):
        copy_resumably(source, pair[1], progress=progress, **options)


def resumed(pair: Pair, **options: Any) -> None:
    """Goes on, and then both databases hold the same."""
    with Store.open(pair[0]) as source:
        report = copy_resumably(source, pair[1], **options)
        expected = checksums(source)
        with Store.open(pair[1]) as target:
            assert checksums(target) == expected
        assert {name: found for name, found in report.checksums.items() if name != "_meta"} == expected


def resumed_checksums(pair: Pair) -> None:
    with opened(*pair) as (source, target):
        assert checksums(target) == checksums(source)
