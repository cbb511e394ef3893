"""What a page, a form and a live stream are: an address, and a function that gets what was asked."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from persist.db.transactions.verb_frame import Verb
from persist.db.values.clock import instant_before
from persist.errors import InvalidValue, NotFound
from persist.store.store import Store
from persist.store.transaction import Transaction, work_of

if TYPE_CHECKING:
    from persist.cli.nouns import Answer

T = TypeVar("T")
ROWS = 50
"""How many rows a list has on a page."""
MOST_ROWS = 100
TEXT_AT_FIRST = 64 * 1024
"""How many characters of one text a page shows at first; the rest is behind a link."""
_AGES = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True)
class Site:
    """What holds for all pages of an application. `logs`: the folder of session logs; `home`: a list of stores is above it."""

    title: str = "persist"
    allow_changes: bool = False
    logs: Path | None = None
    home: bool = False


@dataclass(frozen=True, slots=True)
class Visit:
    """One look at a page. `tx` is the one snapshot that the page reads, `store` is for what has snapshots of its own."""

    tx: Transaction
    store: Store
    site: Site
    path: str
    """The address below the application's own, with the values in their places."""
    values: Mapping[str, str]
    """What stands in the places of the address."""
    query: Mapping[str, str]
    now: datetime
    shared: dict[str, Any] = field(default_factory=dict)
    """What the function of the page and that of its JSON both need."""

    def ask(self, question: Callable[..., T], *given: Any) -> T:
        """What a storage function answers, in the snapshot of the page: for what no verb reads."""
        work = work_of(self.tx)
        with Verb(work, "ui", writes=False):
            return question(work, *given)

    def text(self, name: str) -> str | None:
        """A filter, None where it is not given or empty."""
        return self.query.get(name) or None

    def flag(self, name: str) -> bool:
        """Whether something was asked for: `?hidden=1`."""
        return self.query.get(name, "") not in ("", "0")

    def one_of(self, name: str, known: type[StrEnum] | tuple[str, ...]) -> str | None:
        """A filter with a known word. Raises InvalidValue for any other."""
        words = known if isinstance(known, tuple) else tuple(word.value for word in known)
        value = self.text(name)
        if value is not None and value not in words:
            raise InvalidValue(name, f"expected one of {', '.join(words)}.")
        return value

    def number(self, name: str, default: int, most: int) -> int:
        """A whole number from 1 to `most`. Raises InvalidValue."""
        given = self.text(name)
        if given is None:
            return default
        if not given.isascii() or not given.isdigit() or len(given) > 18 or not 1 <= int(given) <= most:
            raise InvalidValue(name, f"expected a whole number from 1 to {most:,}.")
        return int(given)

    def since(self, name: str = "since") -> datetime | None:
        """The instant that an age such as 12h or 30d names. Raises InvalidValue."""
        age = self.text(name)
        if age is None:
            return None
        number, unit = age[:-1], _AGES.get(age[-1])
        if unit is None or not number.isascii() or not number.isdigit() or len(number) > 5:
            raise InvalidValue(name, "expected an age such as 90m, 12h, 30d or 2w.")
        return instant_before(self.now, timedelta(**{unit: int(number)}))

    def page(self, rows: int = ROWS) -> dict[str, Any]:
        """The arguments `limit` and `after` of a list."""
        return {"limit": self.number("limit", rows, MOST_ROWS), "after": self.text("after")}

    def filters(self, *names: str) -> dict[str, str | None]:
        """The named filters, as they were given."""
        return {name: self.text(name) for name in names}


Body = Callable[[Visit], dict[str, Any]]
"""Reads what a page shows: the names that its template uses, `title` among them."""


@dataclass(frozen=True, slots=True)
class View:
    """A page: its address with `{places}`, its template, what it reads, and the answer of the command that says the same."""

    path: str
    template: str
    body: Body
    json: "Callable[[Visit], Answer]"


@dataclass(frozen=True, slots=True)
class Change:
    """One form that was sent: a transaction in which the actor acts."""

    tx: Transaction
    values: Mapping[str, str]
    form: Mapping[str, str]
    actor: str | None

    def field(self, name: str) -> str:
        """A field that must be there. Raises InvalidValue."""
        value = self.form.get(name, "")
        if not value:
            raise InvalidValue(name, "it is empty.")
        return value


@dataclass(frozen=True, slots=True)
class Action:
    """A form's address, and what it does: it returns the sentence that says what was done."""

    path: str
    does: Callable[[Change], str]


@dataclass(frozen=True, slots=True)
class File:
    """Bytes that are no page: their media type, and the name to keep them under; without a name they are shown in their place."""

    body: bytes
    media_type: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Download:
    """A file's address, and what it gives."""

    path: str
    gives: Callable[[Visit], File]


@dataclass(frozen=True, slots=True)
class Told:
    """One event of a live stream. `id`: where a viewer who comes back goes on."""

    event: str
    data: Any
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """A live stream's address, and what it tells. `checks` looks at what is asked for before anything is told."""

    path: str
    tells: "Callable[[Listening], AsyncIterator[Told]]"
    checks: Callable[[Visit], object]


@dataclass(frozen=True, slots=True)
class Listening:
    """What one viewer of a live stream asked for. `read` runs a function in a snapshot of its own.

    `root`: what stands before each address of the application. `shared`: what the application's viewers have in common.
    """

    store: Store
    site: Site
    values: Mapping[str, str]
    query: Mapping[str, str]
    read: Callable[[Callable[[Transaction], Any]], Any]
    last_id: str | None
    root: str = ""
    shared: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Section:
    """The pages, forms, streams and files of one subject, and its place in the menu: a word and an address."""

    label: str
    path: str
    views: tuple[View, ...] = ()
    actions: tuple[Action, ...] = ()
    streams: tuple[Stream, ...] = ()
    downloads: tuple[Download, ...] = ()


def found(value: T | None, kind: str, id: str) -> T:
    """What was looked for. Raises NotFound where it is not there."""
    if value is None:
        raise NotFound(kind, id)
    return value
