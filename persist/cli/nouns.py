"""What commands share: a noun is a group of commands, and a command returns an answer, which is printed in one of three ways."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Generic, TypeVar

import click

from persist.cli.database import Database, as_json, on_database, on_named_database, quiet
from persist.cli.output import Paint, cells, columns, inline, instant, say, say_json
from persist.cli.root import COMMANDS, Failed, Group
from persist.db.values.pages import Page, PagedList
from persist.store.transaction import Transaction

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command says: `json`, `quiet` with -q, else `lines`, and `notes` on standard error; `failed`: how it then ends."""

    json: Any
    lines: Iterable[str] = ()
    quiet: Iterable[str] = ()
    notes: Iterable[str] = ()
    failed: Failed | None = None

    def say(self, *, as_json: bool, quiet: bool) -> None:
        if as_json:
            say_json(self.json)
        else:
            for line in self.quiet if quiet else self.lines:
                say(line)
            for note in () if quiet else self.notes:
                say(note, err=True)
        if self.failed is not None:
            raise self.failed


@dataclass(frozen=True)
class Table(Generic[T]):
    """How rows of a kind are listed: `none` without any, `row` under `head`; `name` of one with -q, `json` with --json."""

    none: str
    head: Sequence[str]
    row: Callable[[T], Sequence[object]]
    name: Callable[[T], object] = attrgetter("id")
    json: Callable[[T], Any] = lambda one: one

    def page(self, page: Page[T] | PagedList[T], note: str | None = None, **more: object) -> Answer:
        """The answer for a page of a list, which says how to get the next one."""
        next_page = None if page.cursor is None else f"There are more: add --after {page.cursor}"
        return self.all(page.items, next_page or note, cursor=page.cursor, **more)

    def all(self, found: Iterable[T], note: str | None = None, cursor: str | None = None, **more: object) -> Answer:
        """The answer for a whole list. `more`: what the JSON object has beside `items` and `cursor`, null without a next page."""
        items = list(found)
        return Answer(
            {"items": map(self.json, items), "cursor": cursor, **more},
            table(self.head, map(self.row, items)) if items else (),
            (cell(self.name(one)) for one in items),
            (*(() if items else (self.none,)), *(() if note is None else (note,))),
        )


class Text(str):
    """Text to print unchanged, such as coloured text."""

    __slots__ = ()


def cell(value: object) -> str:
    """A value on one line: an instant in UTC, a number with its thousands apart, a dash for none, anything else as text."""
    match value:
        case None:
            return "-"
        case Text():
            return value
        case datetime():
            return instant(value)
        case int():
            return f"{value:,}"
    return inline(value if isinstance(value, str) else str(value))


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Rows below each other in columns, under their head."""
    first, *rest = columns([head, *(tuple(map(cell, row)) for row in rows)])
    yield Paint()(first, bold=True)
    yield from rest


def known(facts: Iterable[tuple[str, object]]) -> Iterator[str]:
    """A line for each fact that is not None, the values below each other."""
    paint = Paint()
    told = [
        (name, f"{cell(value)} UTC" if isinstance(value, datetime) else cell(value)) for name, value in facts if value is not None
    ]
    width = max((cells(name) for name, _ in told), default=0)
    for name, value in told:
        yield f"{paint(name, dim=True)}{' ' * (width - cells(name))}  {value}".rstrip()


def facts(of: object, **attributes: str) -> list[tuple[str, object]]:
    """What `known` tells of a value: attributes of it, each under the word for it."""
    return [(word, getattr(of, name)) for word, name in attributes.items()]


def shown(json: Any, facts: Iterable[tuple[str, object]], lines: Iterable[str], *, apart: bool = True) -> Answer:
    """The answer of a `show`: facts, which -q leaves out, and lines of contents; `apart`: with an empty line between."""

    def all_() -> Iterator[str]:
        yield from known(facts)
        if apart:
            yield ""
        yield from lines

    return Answer(json, all_(), lines)


def is_silent() -> bool:
    """Whether the command says nothing while it works: it was given --json or -q."""
    given = click.get_current_context().params
    return bool(given.get("as_json") or given.get("quiet"))


def told(json: Any, *lines: str) -> Answer:
    """The answer of a command that changed something: -q prints nothing."""
    return Answer(json, lines)


def limit(count: int = 20, maximum: int = 1000, help: str = "How many.") -> Callable[[F], F]:
    """--limit."""
    return click.option("--limit", type=click.IntRange(1, maximum), default=count, show_default=True, help=help)


def pages(count: int = 20, help: str = "How many.") -> Callable[[F], F]:
    """--limit and --after, of a list that has pages."""
    after = click.option("--after", metavar="CURSOR", help="The page after the one that ended with this cursor.")
    return lambda command: limit(count, help=help)(after(command))


def answers(quiet_help: str | None, *, json: bool = True) -> Callable[[Callable[..., Answer]], Callable[..., None]]:
    """--json and -q, below the command's own options; the command returns its answer, which is printed."""

    def decorate(command: Callable[..., Answer]) -> Callable[..., None]:
        def run(*args: Any, as_json: bool = False, quiet: bool = False, **given: Any) -> None:
            command(*args, **given).say(as_json=as_json, quiet=quiet)

        own = command.__dict__.get("__click_params__", [])
        run.__doc__, run.__name__ = command.__doc__, command.__name__
        if quiet_help is not None:
            run = quiet(quiet_help)(run)
        if json:
            run = as_json(run)
        run.__dict__.setdefault("__click_params__", []).extend(own)
        return run

    return decorate


class Noun(Group):
    """Commands about one kind of row, such as runs. Without `help` that is the line that `persist --help` has of it."""

    def __init__(self, name: str, help: str | None = None) -> None:
        short_help = COMMANDS[name][2]
        super().__init__(name, short_help=short_help, help=help or short_help)
        self._answers: dict[str, Callable[..., Answer]] = {}

    def answer(self, name: str, tx: Transaction, **given: Any) -> Answer:
        """The answer of a command of this noun that looks, in a snapshot that there is already."""
        return self._answers[name](tx, **given)

    def reads(
        self, name: str, short_help: str, *, quiet: str | None = "Print the ids alone."
    ) -> Callable[[Callable[..., Answer]], click.Command]:
        """A command that looks: its function gets a snapshot `tx`, before its options."""
        return self._verb(name, short_help, _snapshot, quiet, json=True)

    def lists(
        self, short_help: str, rows: Table[T], verb: Callable[[Transaction], Any], *, quiet: str = "Print the ids alone."
    ) -> None:
        """`ls`, which prints pages of what a verb lists."""

        @pages()
        def ls(tx: Transaction, **wanted: Any) -> Answer:
            return rows.page(verb(tx)(**wanted))

        ls.__doc__ = f"{short_help} With --json: an object with `items` and `cursor`, null on the last page."
        self.reads("ls", short_help, quiet=quiet)(ls)

    def writes(
        self, name: str, short_help: str, *, quiet: str | None = "Print nothing.", json: bool = True
    ) -> Callable[[Callable[..., Answer]], click.Command]:
        """A command that changes something: its function gets `tx`, one transaction on an existing database."""
        return self._verb(name, short_help, _transaction, quiet, json=json)

    def _verb(
        self,
        name: str,
        short_help: str,
        opened: Callable[[Database], AbstractContextManager[Transaction]],
        quiet: str | None,
        *,
        json: bool,
    ) -> Callable[[Callable[..., Answer]], click.Command]:
        def decorate(command: Callable[..., Answer]) -> click.Command:
            def run(database: Database, **given: Any) -> Answer:
                with opened(database) as tx:
                    return command(tx, **given)

            self._answers[name] = command
            own = command.__dict__.get("__click_params__", [])
            run.__doc__, run.__name__ = command.__doc__, command.__name__
            run.__dict__["__click_params__"] = own
            on = on_database if any(isinstance(param, click.Argument) for param in own) else on_named_database
            return self.command(name, short_help=short_help)(on(answers(quiet, json=json)(run)))

        return decorate


@contextmanager
def _snapshot(database: Database) -> Iterator[Transaction]:
    with database.open(read_only=True) as store, store.read() as tx:
        yield tx


@contextmanager
def _transaction(database: Database) -> Iterator[Transaction]:
    with database.open_existing() as store, store.begin() as tx:
        yield tx
