"""Compares the rows of a table in two databases: both are read once, in the order of their keys."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Table

from persist.db.dialects.bulk import Row
from persist.maintenance.checksums import Checksum
from persist.maintenance.table_keys import Key, comparable, key_columns, key_in


@dataclass(frozen=True, slots=True)
class Group:
    """The rows with one key, and for each of them what two databases with the same row have in common.

    It is one row, except where a key may be NULL.
    """

    key: list[object]
    rows: list[Row]
    texts: list[bytes]


def groups(table: Table, batches: Iterator[list[Row]], checksum: Checksum) -> Iterator[Group]:
    """The rows of batches that are ordered by their keys. The checksum grows by each batch."""
    columns, key = tuple(table.columns), key_columns(table)
    last: Group | None = None
    for batch in batches:
        texts = checksum.texts(batch)
        checksum.add_texts(texts)
        for row, text in zip(batch, texts, strict=True):
            found = key_in(row, columns, key)
            if last is not None and last.key == found:
                last.rows.append(row)
                last.texts.append(text)
                continue
            if last is not None:
                yield last
            last = Group(found, [row], [text])
    if last is not None:
        yield last


def differences(source: Iterator[Group], target: Iterator[Group]) -> Iterator[tuple[Group | None, Group | None]]:
    """The groups of one key that differ: of the source and of the target, None where there is none."""
    ours, theirs = next(source, None), next(target, None)
    while ours is not None or theirs is not None:
        if theirs is None or (ours is not None and comparable(ours.key) < comparable(theirs.key)):
            yield ours, None
            ours = next(source, None)
        elif ours is None or comparable(ours.key) > comparable(theirs.key):
            yield None, theirs
            theirs = next(target, None)
        else:
            if ours.texts != theirs.texts and sorted(ours.texts) != sorted(theirs.texts):
                yield ours, theirs
            ours, theirs = next(source, None), next(target, None)


def superfluous(source: Iterator[Sequence[object]], target: Iterator[Sequence[object]]) -> Iterator[Sequence[object]]:
    """The keys that only the target has. Both are ordered, and a key may come several times."""
    ours: Key | None = None
    for theirs in target:
        wanted = comparable(theirs)
        while ours is None or ours < wanted:
            found = next(source, None)
            if found is None:
                yield theirs
                break
            ours = comparable(found)
        else:
            if ours != wanted:
                yield theirs
