"""Which deletion a database refused: noted at its error, for the sentence that says whose rows are in the way."""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Delete, Executable

Deletion = tuple[Delete, Mapping[str, Any]]
_NOTE = "_persist_deletions"
_DEEP = 5


def note_deletions(error: BaseException, statements: Iterable[tuple[Executable, Mapping[str, Any]]]) -> None:
    """Note at an error which of the statements that it may be about delete rows."""
    deletions = [(statement, values) for statement, values in statements if isinstance(statement, Delete)]
    if deletions:
        error.__dict__[_NOTE] = deletions


def noted_deletions(error: BaseException | None) -> list[Deletion]:
    """What was noted at the error, or at one that it was raised from."""
    for _ in range(_DEEP):
        if error is None:
            break
        if found := error.__dict__.get(_NOTE):
            return found  # type: ignore[no-any-return]  # by note_deletions
        error = error.__cause__
    return []
