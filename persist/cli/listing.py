"""What commands have in common that list something by its name: their options, and how they print it."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from persist.cli.database import as_json, on_named_database, quiet
from persist.cli.output import inline, say, say_json_list, say_table

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=BaseModel)


def by_name(word: str) -> Callable[[F], F]:
    """DATABASE or --url, --schema, --json and --quiet, which prints the names alone. `word`: what a name is called there."""
    return lambda command: on_named_database(as_json(quiet(f"Print the {word} alone.")(command)))


def say_named(
    found: Sequence[T],
    none: str,
    head: Sequence[str],
    row: Callable[[T], Sequence[str]],
    name: Callable[[T], str],
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print JSON, or the names, or a table. `none`: the sentence without any. `row`: the cells of one, under `head`."""
    if as_json:
        say_json_list(one.model_dump(mode="json") for one in found)
    elif quiet:
        for one in found:
            say(inline(name(one)))
    elif not found:
        say(none, err=True)
    else:
        say_table([head, *map(row, found)])
