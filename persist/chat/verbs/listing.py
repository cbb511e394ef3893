"""Lists of sessions: their filters, and the statement that selects a page."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import Text, bindparam, or_, select
from sqlalchemy.sql.elements import ColumnElement

from persist.chat.models import ARCHIVED, OWNED, TITLE, sessions
from persist.chat.schemas import ChatSession
from persist.db.expressions.json_members import json_has_member
from persist.db.expressions.keyset import behind
from persist.db.schema.base import LABEL_CHARACTERS
from persist.db.statements.prepared import LIMIT, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_flag
from persist.db.values.clock import epoch_ms
from persist.db.values.escaping import LEAD
from persist.db.values.json import Json
from persist.db.values.pages import Page, check_limit, values_after
from persist.errors import InvalidValue

_LIST = "chat.sessions"
_S = sessions.c
SESSION = Values(ChatSession, sessions)
_MAX_MEMBERS = 16
"""The most metadata values that one list is filtered by."""
_MAX_INTEGER = 2**63


def list_sessions(
    work: UnitOfWork,
    *,
    agent: str | None,
    workspace_root: str | None,
    owner: str | None,
    metadata: Mapping[str, Json] | None,
    search: str | None,
    archived: bool | None,
    include_archived: bool,
    limit: int,
    after: str | None,
) -> Page[ChatSession]:
    """A page of the sessions that meet all filters, the most recently active first."""
    limit = check_limit(limit)
    if archived is not None:
        check_flag("archived", archived)
    shown = archived if archived is not None or include_archived else False
    filters: dict[str, Any] = {"agent": agent, "workspace_root": workspace_root, "include_archived": shown is None}
    filters |= {} if owner is None else {"owner": owner}
    filters |= {"archived": True} if shown else {}
    given: dict[str, Any] = {}
    if agent is not None:
        given["agent"] = work.label("agent", agent)
    if owner is not None:
        given["owner"] = work.label("owner", owner)
    if workspace_root is not None:
        given["workspace_root"] = work.label("workspace_root", workspace_root, empty=True)
    members = [] if metadata is None else _members(work, metadata)
    if members:
        filters["metadata"] = members
    patterns = [] if search is None else _patterns(work.label("search", search))
    if patterns:
        filters["search"] = search
    after_key = values_after(after, _LIST, filters)
    statement = _listing(shown, bool(after_key), len(members), len(patterns), *given)
    values: dict[str, Any] = {_member(place): member for place, member in enumerate(members)}
    values |= {_pattern(place): pattern for place, pattern in enumerate(patterns)}
    rows = work.rows(statement, **given, **values, **after_key, limit=limit + 1)
    return Page.of(rows, limit, SESSION, name=_LIST, filters=filters, key=lambda _, item: [epoch_ms(item.updated_at), item.id])


@cache
def _listing(archived: bool | None, goes_on: bool, members: int, patterns: int, *given: str) -> Statement:
    """The SELECT of a list, with those of the filters `agent`, `owner` and `workspace_root` that are given."""
    query = select(*SESSION.columns).order_by(_S.updated_at.desc(), _S.id.desc()).limit(LIMIT)
    query = query.where(*(_S[name] == param(name) for name in given))
    if "owner" in given:
        query = query.where(OWNED)  # the condition of the partial index
    if archived is not None:
        query = query.where(ARCHIVED if archived else _S.archived_at.is_(None))
    for place in range(members):
        member: ColumnElement[Any] = bindparam(_member(place), type_=_S.metadata_json.type)
        query = query.where(json_has_member(_S.metadata_json, member))
    if patterns:
        spelt = (bindparam(_pattern(place), type_=Text()) for place in range(patterns))
        query = query.where(or_(*(TITLE.ilike(pattern, escape="\\") for pattern in spelt)))
    if goes_on:
        query = query.where(behind((_S.updated_at, _S.id), ("after_at", "after_id"), descending=True))
    return Statement(query)


def _member(place: int) -> str:
    return f"member_{place}"


def _pattern(place: int) -> str:
    return f"pattern_{place}"


def _members(work: UnitOfWork, metadata: Mapping[str, Json]) -> list[dict[str, Json]]:
    """The metadata to filter by, as objects of one member each. Raises InvalidValue."""
    wanted = work.json_object("metadata", metadata)
    work.json("metadata", wanted)
    if len(wanted) > _MAX_MEMBERS:
        raise InvalidValue("metadata", f"at most {_MAX_MEMBERS} values can be asked for.")
    for key, value in wanted.items():
        if isinstance(value, (dict, list)):
            raise InvalidValue(f"metadata.{key}", "text, a number, true, false or null can be asked for, no list and no object.")
        if isinstance(value, int) and not -_MAX_INTEGER <= value < _MAX_INTEGER:
            raise InvalidValue(f"metadata.{key}", "integers of more than 64 bits cannot be asked for.")
        if isinstance(value, str) and "\x00" in value:
            raise InvalidValue(f"metadata.{key}", "text with NUL cannot be asked for.")
    return [{key: value} for key, value in wanted.items()]


def _patterns(search: str) -> list[str]:
    """LIKE patterns of the text, in its usual spellings where the databases do not ignore the case. Raises InvalidValue."""
    if len(search) > LABEL_CHARACTERS:
        raise InvalidValue("search", f"at most {LABEL_CHARACTERS} characters of a title are searched.")
    spellings = [search]
    if not search.isascii():
        spellings += [search.lower(), search.upper(), search.capitalize(), search.title()]
    return [f"%{_literal(spelling)}%" for spelling in dict.fromkeys(spellings)]


def _literal(text: str) -> str:
    for special in ("\\", "%", "_"):
        text = text.replace(special, "\\" + special)
    return text.replace(LEAD, "%")  # stored once on SQLite, twice on Postgres
