"""Pages of lists and their keyset cursors: opaque to callers, valid only for the list and filters they came from."""

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import orjson

from persist.db.values.arguments import check_label
from persist.db.values.clock import from_epoch_ms
from persist.db.values.escaping import utf8_size
from persist.errors import InvalidValue

_VERSION = 1
_BIG = 2**63
_ID_BYTES = 600  # what an indexed label may take (persist.db.schema.column_types)
R = TypeVar("R")
T = TypeVar("T")


class Page(Generic[T]):
    """One page of a list: `items`, and `cursor` to pass as `after=` for the next page; None on the last page."""

    __slots__ = ("cursor", "items")

    def __init__(self, items: list[T], cursor: str | None) -> None:
        self.items, self.cursor = items, cursor

    @classmethod
    def of(
        cls,
        rows: Sequence[R],
        limit: int,
        make: Callable[[R], T],
        *,
        name: str,
        filters: Mapping[str, Any],
        key: Callable[[R, T], list[Any]],
    ) -> "Page[T]":
        """The first `limit` rows as items; an extra row says that there are more. `name`, `filters` and `key` make the cursor."""
        items = [make(row) for row in rows[:limit]]
        if len(rows) <= limit:
            return cls(items, None)
        return cls(items, encode_cursor(name, filters, key(rows[limit - 1], items[-1])))

    def __repr__(self) -> str:
        return f"Page(items={self.items!r}, cursor={self.cursor!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Page) and (self.items, self.cursor) == (other.items, other.cursor)

    __hash__ = None  # type: ignore[assignment]  # holds a list


class PagedList(list[T]):
    """What a list returns that has a limit only if it is asked for: the items, with the `cursor` of a Page.

    Without a limit it has every item. With one, pass `cursor` as `after=` for the next page. `cursor` is None on the last page.
    """

    cursor: str | None

    def __init__(self, items: Iterable[T] = (), cursor: str | None = None) -> None:
        super().__init__(items)
        self.cursor = cursor

    @property
    def items(self) -> list[T]:
        """The items themselves, as a Page has them."""
        return self


def encode_cursor(name: str, filters: Mapping[str, Any], key: list[Any]) -> str:
    """The cursor that points behind the row whose stored sort values are `key` (its id last)."""
    return _base64_text(orjson.dumps([_VERSION, name, _digest(filters), key]))


def decode_cursor(
    cursor: str, name: str, filters: Mapping[str, Any], kinds: tuple[type, ...], longest: int = _ID_BYTES
) -> list[Any]:
    """The sort values, of types `kinds`, in a cursor of this list with these filters. Raises InvalidValue for others."""
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        if _base64_text(raw) != cursor:  # the decoder skips characters outside of its alphabet
            raise ValueError
        version, list_name, digest, key = orjson.loads(raw)
    except (binascii.Error, ValueError, TypeError):
        raise InvalidValue("after", "this is not a cursor.") from None
    if version != _VERSION or list_name != name or digest != _digest(filters):
        raise InvalidValue("after", "the cursor belongs to another list, or to other filters.")
    if type(key) is not list or len(key) != len(kinds) or any(type(v) is not k for v, k in zip(key, kinds, strict=True)):
        raise InvalidValue("after", "this is not a cursor.")
    if any(not -_BIG <= value < _BIG if type(value) is int else utf8_size(str(value)) > longest for value in key):
        raise InvalidValue("after", "this is not a cursor.")
    return key


def values_after(after: str | None, name: str, filters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters `after_at` (milliseconds) and `after_id` of a list; none without a cursor. Raises InvalidValue."""
    if after is None:
        return {}
    at, last = decode_cursor(check_label("after", after), name, filters, (int, str))
    return {"after_at": from_epoch_ms(at), "after_id": last}


def check_limit(limit: object, *, maximum: int = 1000, path: str = "limit") -> int:
    """A page size: a whole number from 1 to `maximum`, else InvalidValue."""
    if type(limit) is not int or not 1 <= limit <= maximum:
        raise InvalidValue(path, f"expected a whole number from 1 to {maximum}.")
    return limit


def optional_limit(limit: object, after: str | None) -> int | None:
    """A page size, or None for a list without one, which takes no cursor. Raises InvalidValue."""
    if limit is None:
        if after is not None:
            raise InvalidValue("after", "a cursor needs a limit, too.")
        return None
    return check_limit(limit)


def _base64_text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _digest(filters: Mapping[str, Any]) -> str:
    return hashlib.blake2b(orjson.dumps(filters, option=orjson.OPT_SORT_KEYS), digest_size=6).hexdigest()
