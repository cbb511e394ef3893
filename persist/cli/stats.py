"""`persist stats`: a database at a glance."""

from collections.abc import Iterator
from typing import Any

import click

from persist.cli.database import Database, as_json, on_named_database, quiet
from persist.cli.output import Paint, columns, inline, say, say_json
from persist.cli.progress import Progress
from persist.cli.sizes import size
from persist.maintenance.overview import stats as stats_of

_NAMED = 5


@click.command(short_help="Sizes, rows, statuses and settings of a database.")
@on_named_database
@click.option("--all", "everything", is_flag=True, help="Empty tables, too.")
@as_json
@quiet("Print the tables alone, one a line: name, rows, bytes.")
def stats(database: Database, everything: bool, as_json: bool, quiet: bool) -> None:
    """Print sizes, rows, large values, statuses and settings; on Postgres dead rows and unused indexes, too.

    It reads every table once. "large values" are texts, JSON and blobs, as they are stored. With --json: an object with
    `database`, `tables`, `indexes`, `blobs`, `statuses` and `settings`; sizes are in bytes.
    """
    with database.open(read_only=True) as store, Progress("Reading", left="", quiet=quiet or as_json) as progress:
        found = progress.run(lambda: stats_of(store, progress=progress))
    if as_json:
        say_json(found)
    elif quiet:
        for name, facts in found["tables"].items():
            say(f"{name} {facts['rows']} {'-' if facts['bytes'] is None else facts['bytes']}")
    else:
        for line in _lines(found, Paint(), everything=everything):
            say(line)


def _lines(found: dict[str, Any], paint: Paint, *, everything: bool) -> Iterator[str]:
    facts = list(columns(_database(found)))
    for line in facts:
        name, _, value = line.partition(" ")
        yield f"{paint(name, dim=True)} {value}"
    yield ""
    head, *rows = columns(_tables(found, everything=everything))
    yield paint(head, bold=True)
    yield from rows
    statuses = list(_statuses(found))
    if statuses:
        yield ""
        head, *rows = columns([("STATUSES", ""), *statuses])
        yield paint(head, bold=True)
        yield from rows


def _database(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    database = found["database"]
    path = database.get("path") or database.get("database") or ":memory:"
    where = f"{path}, schema {database['schema']}" if database.get("schema") else path
    yield "database", f"{inline(where)} ({database['dialect']} {inline(database['version'])})"
    behind = "" if database["revision"] == database["head"] else f" (this version of persist is at {database['head']})"
    yield "revision", f"{database['revision']}{behind}"
    if "pages" in database:
        yield "size", f"{size(database['bytes'])}: {database['pages']:,} pages, {database['free_pages']:,} of them free"
        yield "log", size(database["wal_bytes"])
    else:
        yield "size", f"{size(database['bytes'])} of {size(database['database_bytes'])} in the database"
    yield "settings", ", ".join(f"{name} {inline(str(value))}" for name, value in found["settings"].items())
    unused = [index for index in found["indexes"] if index.get("scans") == 0 and not index["unique"]]
    if unused:
        unused.sort(key=lambda index: (-index["bytes"], index["name"]))
        named = ", ".join(f"{inline(index['name'])} {size(index['bytes'])}" for index in unused[:_NAMED])
        yield "unused", f"{len(unused):,} indexes without a scan: {named}{', …' if len(unused) > _NAMED else ''}"


def _tables(found: dict[str, Any], *, everything: bool) -> Iterator[tuple[str, ...]]:
    server = any("dead_rows" in facts for facts in found["tables"].values())
    yield ("TABLE", "DOMAIN", "ROWS", "SIZE", "LARGE VALUES", *(("DEAD ROWS", "VACUUMED (UTC)") if server else ()))
    total_rows = total_size = total_large = 0
    ordered = sorted(found["tables"].items(), key=lambda item: (-(item[1]["bytes"] or 0), -item[1]["rows"], item[0]))
    for name, facts in ordered:
        large = sum(found["blobs"].get(name, {}).values())
        total_rows, total_size, total_large = total_rows + facts["rows"], total_size + (facts["bytes"] or 0), total_large + large
        if facts["rows"] or facts.get("dead_rows") or everything:
            more = (f"{facts['dead_rows']:,}", (facts["last_vacuum"] or "never")[:19].replace("T", " ")) if server else ()
            yield (name, facts["domain"], f"{facts['rows']:,}", size(facts["bytes"]), size(large) if large else "-", *more)
    known = any(facts["bytes"] is not None for facts in found["tables"].values())
    blank = ("", "") if server else ()
    yield ("total", "", f"{total_rows:,}", size(total_size if known else None), size(total_large) if total_large else "-", *blank)


def _statuses(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for tables in found["statuses"].values():
        for name, counts in tables.items():
            words = [f"{inline(word)} {count:,}" for word, count in counts["by_status"].items()]
            if counts["null"]:
                words.append(f"without one {counts['null']:,}")
            if words:
                yield name, ", ".join(words)
