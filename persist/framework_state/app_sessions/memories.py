"""`tx.app_sessions.memories`: what was said in sessions, searched by words."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import bindparam, case, delete, func, literal, or_, select, update
from sqlalchemy.sql.elements import ColumnElement

from persist.db.expressions.text import like
from persist.db.expressions.upsert import insert_missing, upsert
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.pages import check_limit
from persist.framework_state.app_sessions import schemas
from persist.framework_state.app_sessions.models import memories
from persist.framework_state.app_sessions.schemas import FoundMemory, NewMemory
from persist.framework_state.app_sessions.sessions import next_position

_M = memories.c
_KEY = ("app_name", "user_id", "session_id", "id")
_ESCAPE = "!"
_WORDS_PER_QUERY = 50  # longer questions are searched for by several queries
_of_user = (_M.app_name == param("app_name"), _M.user_id == param("user_id"))
_of_session = (*_of_user, _M.session_id == param("session_id"))
_FORGOTTEN = Statement(select(_M.id).where(*_of_user, _M.deleted_at.is_not(None)))
_PLACES = Statement(select(func.min(_M.place), func.max(_M.position)).where(*_of_session))
_IDS = Statement(select(_M.id).where(*_of_session))
_PUT = Statement(upsert(memories, *_KEY))
_ADD = Statement(insert_missing(memories, *_KEY))
_DROP_OTHERS = Statement(
    delete(memories).where(*_of_session, _M.deleted_at.is_(None), _M.stored_by != bindparam("this", type_=_M.stored_by.type))
)
_FORGET = Statement(
    update(memories)
    .where(_M.app_name == param("of_app"), _M.user_id == param("of_user"), _M.id == param("memory_id"), _M.deleted_at.is_(None))
    .values(deleted_at=bindparam("now", type_=_M.deleted_at.type), words="", text="", entry="{}")
)
_ENTRY = Statement(select(_M.entry).where(*_of_session, _M.id == param("memory_id")))


@cache
def _matching(ascii_words: int, other_words: int) -> Statement:
    """The SELECT of memories with a word, and how many: ASCII words are whole words, others may be anywhere in the text."""
    has: list[ColumnElement[bool]] = [like(_M.words, f"word_{number}", escape=_ESCAPE) for number in range(ascii_words)]
    has += [
        or_(like(_M.words, f"whole_{number}", escape=_ESCAPE), like(_M.text, f"part_{number}", escape=_ESCAPE))
        for number in range(other_words)
    ]
    count: Any = sum((case((one, literal(1)), else_=literal(0)) for one in has[1:]), case((has[0], literal(1)), else_=literal(0)))
    return Statement(
        select(_M.session_id, _M.id, _M.place, _M.position, count).where(*_of_user, _M.deleted_at.is_(None), or_(*has))
    )


class AppMemories(Repository[F]):
    """`tx.app_sessions.memories`. `entry` is JSON text. `text` and words are compared as given: both in lower case, say."""

    @writes
    def replace(self, app_name: str, user_id: str, session_id: str, memories: Sequence[NewMemory]) -> None:
        """Replace the memories of a session. A deleted memory stays deleted."""
        work = self._work
        key = schemas.names(work, app_name=app_name, user_id=user_id, session_id=session_id)
        given = schemas.memories(work, memories)
        with work.batch() as batch:
            forgotten = batch.rows(_FORGOTTEN, app_name=app_name, user_id=user_id)
            places = batch.row(_PLACES, **key)
        place = places.result[0] if places.result else None
        rows = _rows(work, key, given, {id for (id,) in forgotten.result}, place, 0)
        this = rows[0]["stored_by"] if rows else work.runtime.ids.mint("mem")
        with work.batch(last=True) as batch:
            batch.run_many(_PUT, rows)
            batch.run(_DROP_OTHERS, **key, this=this)

    @writes
    def add(self, app_name: str, user_id: str, session_id: str, memories: Sequence[NewMemory]) -> None:
        """Add memories to a session, except deleted ones and ids that the session has."""
        work = self._work
        key = schemas.names(work, app_name=app_name, user_id=user_id, session_id=session_id)
        given = schemas.memories(work, memories)
        with work.batch() as batch:
            forgotten = batch.rows(_FORGOTTEN, app_name=app_name, user_id=user_id)
            known = batch.rows(_IDS, **key)
            places = batch.row(_PLACES, **key)
        place, last = places.result or (None, None)
        unwanted = {id for (id,) in (*forgotten.result, *known.result)}
        rows = _rows(work, key, given, unwanted, place, 0 if last is None else last + 1)
        with work.batch(last=True) as batch:
            batch.run_many(_ADD, rows)

    @reads
    def search(self, app_name: str, user_id: str, words: Iterable[str], *, limit: int = 10) -> list[FoundMemory]:
        """A user's memories that contain any of the words: most words first, then in the order of remembering.

        An ASCII word counts only as a whole word, any other word also as a part of a word.
        """
        work = self._work
        key = schemas.names(work, app_name=app_name, user_id=user_id)
        wanted = schemas.words(work, "words", words)
        limit = check_limit(limit)
        chunks = [wanted[start : start + _WORDS_PER_QUERY] for start in range(0, len(wanted), _WORDS_PER_QUERY)]
        if not chunks:
            return []
        with work.batch() as batch:
            found = [batch.rows(_matching(*_counts(chunk)), **key, **_patterns(chunk)) for chunk in chunks]
        matches: defaultdict[tuple[int, int, str, str], int] = defaultdict(int)
        for pending in found:
            for session_id, id, place, position, count in pending.result:
                matches[place, position, session_id, id] += count
        best = sorted(matches.items(), key=lambda match: (-match[1], match[0]))[:limit]
        with work.batch() as batch:
            entries = [batch.rows(_ENTRY, **key, session_id=match[2], memory_id=match[3]) for match, _ in best]
        return [
            FoundMemory(match[3], match[2], entry.result[0][0], count)
            for (match, count), entry in zip(best, entries, strict=True)
            if entry.result
        ]

    @writes
    def delete(self, app_name: str, user_id: str, memory_id: str) -> bool:
        """Delete a memory of a user, in whatever sessions it is; False if there is none. It cannot be remembered again."""
        work = self._work
        key = schemas.names(work, app_name=app_name, user_id=user_id)
        with work.batch(last=True) as batch:
            deleted = batch.run(
                _FORGET,
                of_app=key["app_name"],
                of_user=key["user_id"],
                memory_id=work.label("memory_id", memory_id),
                now=work.now(),
            )
        return bool(deleted.result)


def _rows(
    work: UnitOfWork, key: dict[str, str], given: Sequence[NewMemory], unwanted: set[str], place: int | None, first: int
) -> list[dict[str, Any]]:
    """Rows of memories, ordered by id, so that writers cannot deadlock."""
    shared = {
        **key,
        "place": next_position(work) if place is None else place,
        "stored_by": work.runtime.ids.mint("mem"),
        "updated_at": work.now(),
        "deleted_at": None,
    }
    rows = [
        {**shared, "id": one.id, "words": f" {' '.join(one.words)} ", "text": one.text, "entry": one.entry}
        for one in given
        if one.id not in unwanted
    ]
    for position, row in enumerate(rows, first):
        row["position"] = position
    return sorted(rows, key=lambda row: row["id"])


def _counts(words: Iterable[str]) -> tuple[int, int]:
    ascii_words = [word.isascii() for word in words]
    return sum(ascii_words), len(ascii_words) - sum(ascii_words)


def _patterns(words: Iterable[str]) -> dict[str, str]:
    given = list(words)
    patterns = {f"word_{number}": f"% {_literal(word)} %" for number, word in enumerate(filter(str.isascii, given))}
    for number, word in enumerate(word for word in given if not word.isascii()):
        patterns |= {f"whole_{number}": f"% {_literal(word)} %", f"part_{number}": f"%{_literal(word)}%"}
    return patterns


def _literal(word: str) -> str:
    """The word as a part of a pattern that matches nothing else."""
    for character in (_ESCAPE, "%", "_"):
        word = word.replace(character, _ESCAPE + character)
    return word
