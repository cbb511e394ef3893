"""PersistSessionStore: the Claude Agent SDK's SessionStore protocol over a Store or an AsyncStore."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from claude_agent_sdk import ClaudeSDKError, fold_session_summary
from claude_agent_sdk.types import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_flag
from persist.db.values.clock import epoch_ms
from persist.errors import shown
from persist.framework_state.transcripts.repository import Fold, TranscriptEntries, TranscriptSessions
from persist.integrations.store_bridge import InvalidForFramework, StoreBridge
from persist.maintenance.session_files import session_files_of, store_session_files
from persist.sessionlog.session_files import read_session_files, write_session_files
from persist.store.async_store import AsyncStore
from persist.store.store import Store

T = TypeVar("T")
_Entries = list[dict[str, Any]]
_KEY = ("project_key", "session_id", "subpath")


class InvalidEntry(InvalidForFramework, ClaudeSDKError):  # noqa: N818  # named like the errors it stands among
    """A key or an entry that cannot be stored: an InvalidValue, and also a ClaudeSDKError."""


class PersistSessionStore(SessionStore):
    """Session transcripts of the Claude Agent SDK in a store: give it to `ClaudeAgentOptions(session_store=...)`.

    A transcript is known by its project key, its session id and its subpath. Every call is one transaction; a cancelled one is
    done either completely or not at all. The caller opens and closes the store: one per process, for any number of clients.
    Errors are PersistErrors; what cannot be stored raises InvalidEntry, which is also a ClaudeSDKError.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        """Raise InvalidEntry if it is no store."""
        with InvalidEntry.raised():
            self._store, self._bridge = store, StoreBridge(store)

    def __repr__(self) -> str:
        return f"PersistSessionStore({self._store!r})"

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append entries in one transaction, together with the summary; those stored already, by uuid and content, are not."""
        project, session_id, subpath = _names(key)
        given = cast(_Entries, entries)
        fold = None if subpath else _fold(key)

        def verb(work: UnitOfWork) -> None:
            TranscriptEntries(work).append(project, session_id, given, subpath=subpath, fold=fold)

        if given or not isinstance(given, list):
            await self._call(verb, writes=True)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """The entries of a transcript, in the order of their commits; None if there are none."""
        project, session_id, subpath = _names(key)
        found = await self._call(lambda work: TranscriptEntries(work).list(project, session_id, subpath=subpath))
        return cast(list[SessionStoreEntry], found) or None

    async def tail(self, key: SessionKey, limit: int) -> list[SessionStoreEntry]:
        """The last `limit` entries of a transcript, oldest first. The others are not read, however many there are."""
        project, session_id, subpath = _names(key)
        found = await self._call(lambda work: TranscriptEntries(work).tail(project, session_id, limit, subpath=subpath))
        return cast(list[SessionStoreEntry], found)

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The sessions of a project that have a main transcript, the one written last first."""
        found = await self._call(lambda work: TranscriptSessions(work).mains(project_key))
        return [{"session_id": one.session_id, "mtime": epoch_ms(one.main_at)} for one in found if one.main_at is not None]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """The summaries of a project's sessions, last written first. The SDK itself folds a session without one."""
        found = await self._call(lambda work: TranscriptSessions(work).mains(project_key))
        return [
            {"session_id": one.session_id, "mtime": epoch_ms(one.main_at), "data": one.summary}
            for one in found
            if one.main_at is not None and isinstance(one.summary, dict)
        ]

    async def delete(self, key: SessionKey) -> None:
        """Delete a session with all its subpaths, or a subpath alone. Deleting what is not there does nothing."""
        project, session_id, subpath = _names(key)
        await self._call(lambda work: TranscriptSessions(work).delete(project, session_id, subpath=subpath), writes=True)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """The subpaths of a session, such as its subagents' logs."""
        project, session_id, _ = _names(key)
        return await self._call(lambda work: TranscriptSessions(work).subpaths(project, session_id))

    async def import_session(
        self,
        session_id: str,
        *,
        home: str | os.PathLike[str] | None = None,
        directory_key: str | None = None,
        project_key: str | None = None,
        include_subagents: bool = True,
    ) -> int:
        """Append what is in the files of a local session and not in the store, in one transaction; the number of new entries.

        `home`: the folder above `projects`, by default that of Claude Code. `directory_key`: the folder below `projects`, needed
        where several have such a session. `project_key`: where to store it, by default the name of that folder. In contrast to
        the SDK's `import_session_to_store`, repeating it appends nothing, not even entries without a uuid.
        """
        with InvalidEntry.raised():
            subagents = check_flag("include_subagents", include_subagents)
            session = read_session_files(_home(home), session_id, project_slug=directory_key, subagents=subagents)
            key: SessionKey = {"project_key": project_key or session.project_slug, "session_id": session_id}
            return await self._bridge.run_async(
                lambda tx: store_session_files(tx, session, project=key["project_key"], fold=_fold(key)), writes=True
            )

    async def write_session(
        self, key: SessionListSubkeysKey, *, home: str | os.PathLike[str] | None = None, overwrite: bool = False
    ) -> list[Path]:
        """Write a session and its subagents as local files, from which Claude Code can resume it; the paths written.

        Raises NotFound, and Conflict if a file is there already and not `overwrite`.
        """
        project, session_id, _ = _names(key)
        with InvalidEntry.raised():
            replace = check_flag("overwrite", overwrite)
            session = await self._bridge.run_async(lambda tx: session_files_of(tx, project, session_id), writes=False)
            return write_session_files(_home(home), session, overwrite=replace)

    async def _call(self, verb: Callable[[UnitOfWork], T], *, writes: bool = False) -> T:
        with InvalidEntry.raised():
            return await self._bridge.call_async(verb, writes=writes)


def _names(key: object) -> tuple[str, str, str]:
    """The project, the session and the subpath ("" for the main transcript) of a key."""
    if not isinstance(key, Mapping):
        raise InvalidEntry("key", f"expected a SessionKey, got {type(key).__name__}.")
    for name in key:
        if name not in _KEY:
            raise InvalidEntry("key", f"there is no {shown(name)} in a key, only {', '.join(_KEY)}.")
    for name in ("project_key", "session_id"):
        if not isinstance(key.get(name), str):
            raise InvalidEntry(f"key.{name}", "expected text.")
    subpath = key.get("subpath")
    if subpath is not None and (not isinstance(subpath, str) or not subpath):
        raise InvalidEntry("key.subpath", "expected text that is not empty; leave it out for the main transcript.")
    return key["project_key"], key["session_id"], subpath or ""


def _fold(key: SessionKey) -> Fold:
    """Fold entries into what the SDK keeps of a session. Its `mtime` is not stored: it is the row's own."""

    def fold(previous: Any, new: list[dict[str, Any]]) -> Any:
        before: Any = None
        if isinstance(previous, dict):
            before = {"session_id": key["session_id"], "mtime": 0, "data": previous}
        return fold_session_summary(before, key, cast(list[SessionStoreEntry], new))["data"]

    return fold


def _home(home: str | os.PathLike[str] | None) -> str | os.PathLike[str]:
    """The folder above `projects`: the given folder, or else the folder of Claude Code."""
    return home or os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude"
