"""PersistSession: the OpenAI Agents SDK's Session protocol over a Store or an AsyncStore."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from agents.exceptions import UserError
from agents.items import TResponseInputItem
from agents.memory.session_settings import SessionSettings, coerce_session_settings
from pydantic import ValidationError

from persist.db.values.arguments import check_list
from persist.db.values.json import Json, escape_text
from persist.errors import InvalidValue
from persist.integrations.framework_errors import InvalidForFramework, kind_of
from persist.integrations.openai_agents.items import SessionItems
from persist.integrations.openai_agents.stored_items import Item, as_text
from persist.integrations.store_bridge import StoreBridge
from persist.store.async_store import AsyncStore
from persist.store.store import Store

T = TypeVar("T")

_MAX = 2**31 - 1


class InvalidItem(InvalidForFramework, UserError):  # noqa: N818  # named like the errors it stands among
    """An item or argument that cannot be stored: an InvalidValue, and also a UserError of the framework."""


class InvalidSettings(InvalidItem, TypeError):  # noqa: N818  # named like the errors it stands among
    """Session settings that name no setting of the framework's, or are none: also a TypeError, as the framework raises."""


@dataclass(frozen=True)
class CompactionSnapshot:
    """The latest items that a compaction may replace, as the framework's own SQL sessions give them.

    complete        whether these are all items
    replace_suffix  puts other items in the place of those from an index on; False: they had changed, so nothing was replaced
    """

    items: list[TResponseInputItem]
    complete: bool
    replace_suffix: Callable[[int, list[TResponseInputItem]], Awaitable[bool]]


class PersistSession:
    """A conversation of the OpenAI Agents SDK in a store: give it to `Runner.run(..., session=...)`.

    `session_id` is any text and names the chat session (`chat_id`). The first items create it, with `agent` and `model`. Every
    call is one transaction; a cancelled one is done either completely or not at all. The caller opens and closes the store:
    one per process, with any number of sessions. Errors are PersistErrors; an item that cannot be stored raises InvalidItem,
    which is also a UserError of the framework.
    """

    session_id: str
    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        store: Store | AsyncStore,
        *,
        agent: str = "openai-agents",
        model: Json = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        _check(session_id, store, agent)
        self.session_id = session_id
        self.session_settings = _settings(session_settings)
        self._store, self._bridge = store, StoreBridge(store)
        self._runtime = (store if isinstance(store, Store) else store._store).runtime
        self._agent = agent
        self._model = {"provider_id": "openai", "model_id": model} if isinstance(model, str) else {} if model is None else model

    @property
    def chat_id(self) -> str:
        """The chat session's id: `session_id`, with characters that ids cannot contain escaped (NUL, lone surrogates)."""
        return escape_text(self.session_id, nul=True)

    def __repr__(self) -> str:
        return f"PersistSession({self.session_id!r}, {self._store!r})"

    async def get_items(self, limit: int | None = None, *, wrapper: object = None) -> list[TResponseInputItem]:
        """The latest `limit` readable items, oldest first; by default as many as the session settings say, or all."""
        if limit is None and self.session_settings is not None:
            limit = _settings(self.session_settings).limit
        if limit is not None and type(limit) is not int:
            raise InvalidItem("limit", f"expected a whole number, got {type(limit).__name__}.")
        if limit == 0:
            return []
        maximum = None if limit is None or limit < 0 else min(limit, _MAX)  # a negative limit means all, as in the framework
        return cast(list[TResponseInputItem], await self._run(lambda items: items.read(self.chat_id, maximum), write=False))

    async def add_items(self, items: list[TResponseInputItem], *, wrapper: object = None) -> None:
        """Append items in one transaction, which also creates the session if there is none."""
        if given := _items(items):
            await self._write(given, lambda stored, texts: stored.add(self.chat_id, texts, agent=self._agent, model=self._model))

    async def pop_item(self, *, wrapper: object = None) -> TResponseInputItem | None:
        """Delete the latest item and return it; None if there is none."""
        return cast(TResponseInputItem | None, await self._run(lambda items: items.pop(self.chat_id)))

    async def clear_session(self, *, wrapper: object = None) -> None:
        """Delete all items. The chat session stays, with its other messages, and further items can be added."""
        await self._run(lambda items: items.clear(self.chat_id))

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[TResponseInputItem], bool] | None = None
    ) -> CompactionSnapshot | None:
        """The latest items, for the framework's compaction. None: an item is unreadable, or a subclass may change items.

        Putting the summary in their place is one transaction, which also deletes the oldest items, as long as `prune_prefix` is
        true of them: those that expired under the framework's encryption.
        """
        if type(self) is not PersistSession:
            return None
        stored, complete = await self._run(lambda items: items.tail(self.chat_id, limit), write=False)
        if any(one.item is None for one in stored):
            return None
        is_expired = cast("Callable[[Item], bool] | None", prune_prefix)

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            expected = stored[start:]
            if not expected:
                return False
            return await self._write(output, lambda items, texts: items.replace_tail(self.chat_id, expected, texts, is_expired))

        return CompactionSnapshot([cast(TResponseInputItem, one.item) for one in stored], complete, replace_suffix)

    async def _atomic_replace_items(self, items: list[TResponseInputItem]) -> bool:
        """Put these items in the place of all items, for the framework's compaction. False: a subclass may change items."""
        if type(self) is not PersistSession:
            return False
        await self._write(
            items, lambda stored, texts: stored.replace_all(self.chat_id, texts, agent=self._agent, model=self._model)
        )
        return True

    async def _write(self, items: Sequence[TResponseInputItem], verb: Callable[[SessionItems, list[str]], T]) -> T:
        """Run one verb that is given the texts of items. InvalidItem for an item that cannot be stored."""
        with InvalidItem.raised():
            texts = [as_text(index, item) for index, item in enumerate(items)]
            return await self._run(lambda stored: verb(stored, texts))

    async def _run(self, verb: Callable[[SessionItems], T], *, write: bool = True) -> T:
        """Run one verb in a transaction of its own."""
        if write or self._runtime.one_connection:
            self._runtime.refuse_inside_transaction("a call of PersistSession")
        return await self._bridge.call_async(lambda work: verb(SessionItems(work)), writes=write)


def _check(session_id: object, store: object, agent: object) -> None:
    if not isinstance(session_id, str) or not session_id:
        raise InvalidItem("session_id", "expected text that is not empty.")
    if not isinstance(store, Store | AsyncStore):
        raise InvalidItem("store", f"expected a Store or an AsyncStore, got {type(store).__name__}.")
    if not isinstance(agent, str):
        raise InvalidItem("agent", f"expected text, got {type(agent).__name__}.")


def _items(given: object) -> list[TResponseInputItem]:
    try:
        return check_list("items", given)
    except InvalidValue as error:
        raise InvalidItem(error.path, error.reason) from error


def _settings(given: object) -> SessionSettings:
    try:
        return coerce_session_settings({} if given is None else cast("SessionSettings | dict[str, Any]", given))
    except TypeError as error:
        raise InvalidSettings("session_settings", f"{error}.") from error
    except ValidationError as error:
        found = kind_of(error)
    raise InvalidItem("session_settings", f"they are no session settings: {found}.")
