"""What both stores of Pydantic AI share: messages as JSON, calls of verbs, and errors. The harness is not needed for it."""

import base64
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_core import PydanticSerializationError

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_list
from persist.errors import StoreCorrupt
from persist.framework_state.histories.schemas import Entry, Message
from persist.integrations.json_keys import check_keys
from persist.integrations.store_bridge import InvalidForFramework, StoreBridge, kind_of
from persist.store.async_store import AsyncStore
from persist.store.store import Store


class InvalidInput(InvalidForFramework, UserError):  # noqa: N818  # named like the errors it stands among
    """A value that cannot be stored: an InvalidValue, and also a UserError of the framework."""


T = TypeVar("T")


class Calls:
    """Runs the verbs of the adapter `name`. A cancelled call is done either completely or not at all."""

    def __init__(self, name: str, store: Store | AsyncStore) -> None:
        if not isinstance(store, Store | AsyncStore):
            raise InvalidInput("store", f"expected a Store or an AsyncStore, got {type(store).__name__}.")
        self._name, self._bridge = name, StoreBridge(store)
        self._runtime = (store if isinstance(store, Store) else store._store).runtime

    async def read(self, verb: Callable[[UnitOfWork], T]) -> T:
        return await self._call(verb, writes=False)

    async def write(self, verb: Callable[[UnitOfWork], T]) -> T:
        return await self._call(verb, writes=True)

    async def _call(self, verb: Callable[[UnitOfWork], T], *, writes: bool) -> T:
        if writes or self._runtime.one_connection:
            self._runtime.refuse_inside_transaction(f"a call of {self._name}")
        with InvalidInput.raised():
            return await self._bridge.call_async(verb, writes=writes)


_BYTES, _FLOAT = "bytes", "float"


def encoded(path: str, messages: Sequence[ModelMessage], kinds: Sequence[str] | None = None) -> list[Message]:
    """Messages to store. Raises InvalidInput for a message that its stored JSON could not rebuild."""
    with InvalidInput.raised():
        given = check_list(path, messages)
    try:
        dumped = ModelMessagesTypeAdapter.dump_python(given, mode="json", warnings=False)
        built = ModelMessagesTypeAdapter.validate_python(dumped)
    except (PydanticSerializationError, ValidationError, ValueError, TypeError, RecursionError) as error:
        found = kind_of(error)
    else:
        return [
            Message(data, kind, list(_unsaid(message, again, [])) or None)
            for data, kind, message, again in zip(dumped, kinds or ["message"] * len(given), given, built, strict=True)
        ]
    raise InvalidInput(path, f"Pydantic AI cannot serialize it: {found}.")


def decoded(entries: Sequence[Entry]) -> list[ModelMessage]:
    """The messages of stored entries. Raises StoreCorrupt for one that is no message."""
    try:
        messages = ModelMessagesTypeAdapter.validate_python([entry.message for entry in entries])
        for entry, message in zip(entries, messages, strict=True):
            for path, kind, text in entry.extra or ():
                _set(message, path, base64.b64decode(text) if kind == _BYTES else float(text))
    except (ValidationError, ValueError, TypeError, LookupError, AttributeError) as error:
        found = kind_of(error)
    else:
        return messages
    raise StoreCorrupt("history_entries", f"a stored message is none of Pydantic AI: {found}.")


def _unsaid(given: Any, built: Any, path: list[str | int]) -> Iterator[list[Any]]:
    """[path, kind, text] of every value in a message that its JSON loses: bytes of any place, NaN and infinities."""
    if given is built:
        return
    if isinstance(given, bytes | bytearray):
        if built != given:
            yield [path, _BYTES, base64.b64encode(given).decode()]
    elif isinstance(given, float):
        if built is None and not math.isfinite(given):
            yield [path, _FLOAT, repr(given)]
    elif isinstance(given, BaseModel):
        _check_keys(path, given)
    elif isinstance(given, Mapping):
        if isinstance(built, Mapping):
            if len(built) < len(given):
                _check_keys(path, given)
            for key, value in given.items():
                if (name := str(key)) in built:  # in JSON a number that is a key is its text
                    yield from _unsaid(value, built[name], [*path, name])
    elif isinstance(given, list | tuple):
        if isinstance(built, list | tuple) and len(built) == len(given):
            for index, (value, other) in enumerate(zip(given, built, strict=True)):
                yield from _unsaid(value, other, [*path, index])
    elif is_dataclass(given) and is_dataclass(built):
        for field in fields(given):
            if hasattr(built, field.name):
                yield from _unsaid(getattr(given, field.name), getattr(built, field.name), [*path, field.name])


def _check_keys(path: Sequence[str | int], value: object) -> None:
    with InvalidInput.raised():
        check_keys(".".join(map(str, path)), value, none="None")


def _set(message: Any, path: Sequence[str | int], value: Any) -> None:
    *steps, last = path
    target: Any = message
    for step in steps:
        target = getattr(target, str(step)) if is_dataclass(target) else target[step]
    if is_dataclass(target):
        object.__setattr__(target, str(last), value)
    else:
        target[last] = value


def fields_of(one: object, names: Sequence[str]) -> dict[str, Any]:
    """The fields that the framework and the store name alike, by their names."""
    return {name: getattr(one, name) for name in names}
