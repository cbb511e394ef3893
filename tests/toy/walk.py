"""A walk through the toy domain of this folder, in a process of its own: no other test sees its tables. It prints what it found.

The domain is imported as a part of persist, as any other: the registry says where.
"""

import asyncio
import json
import sys
from datetime import timedelta
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import persist
from persist.db.transactions.repository import on_demand

persist.__path__.append(str(Path(__file__).parent))

from persist import domains  # noqa: E402  # the domain is registered before anything reads the registry

registered: Any = on_demand(find=lambda: import_module("persist.notes.repository").Notes)
registered.__set_name__(domains.Domains, "notes")
domains.Domains.notes = registered  # type: ignore[attr-defined]  # as if the class named it

from click.testing import CliRunner  # noqa: E402  # the registry is complete by then

from persist import AsyncStore, Store  # noqa: E402  # the registry is complete by then
from persist.cli.root import COMMANDS, main  # noqa: E402  # the registry is complete by then
from persist.errors import NotFound  # noqa: E402  # the registry is complete by then
from persist.events.schemas import TYPES  # noqa: E402  # the registry is complete by then
from persist.maintenance import doctor, erase, export, prunable, prune  # noqa: E402  # the registry is complete by then
from persist.schema.opening import table_ddl  # noqa: E402  # the registry is complete by then

TYPES.update({"Pages.add": "note.added", "Pages.delete": "note.deleted"})
COMMANDS["notes"] = ("persist.notes.commands", "notes", "List notes.")


def make_tables(url: str) -> None:
    """Make the tables of the domain where no revision has: a new file has all tables of the models."""
    with Store.open(url, migrate=True) as store:
        dialect, models = store.runtime.dialect, import_module("persist.notes.models")
        if not dialect.one_file:
            with dialect.connections.writer.connect() as connection:
                for table in (models.NOTES.root, models.LINES):
                    for statement in table_ddl(dialect, table):
                        connection.exec_driver_sql(statement)
                connection.commit()


async def listed(url: str) -> Any:
    """What the asynchronous face lists, gets and deletes."""
    async with await AsyncStore.open(url) as store:
        notes: Any = store.notes  # type: ignore[attr-defined]  # as registered above
        await notes.pages.add("n4", "ada", "four")
        return [(await notes.pages.get("n4")).owner, await notes.pages.delete("n4"), len((await notes.pages.list()).items)]


def printed(url: str, *options: str) -> list[str]:
    """What `persist notes ls` prints."""
    return CliRunner().invoke(main, ["notes", "ls", url, "-q", *options]).output.splitlines()


def walk(url: str) -> dict[str, Any]:
    """What each part of persist did with three notes."""
    make_tables(url)
    said: dict[str, Any] = {}
    with Store.open(url, events=True) as store:
        notes: Any = store.notes  # type: ignore[attr-defined]  # as registered above
        for id, owner in (("n1", "ada"), ("n2", "ada"), ("n3", "bob")):
            notes.pages.add(id, owner, f"line of {id}")
        first = notes.pages.list(limit=2)
        said["list"] = [[note.id for note in page.items] for page in (first, notes.pages.list(after=first.cursor))]
        said["noun"] = [printed(url), printed(url, "--after", first.cursor)]
        said["get"] = notes.pages.get("n3").owner
        said["delete"] = [notes.pages.delete("n1"), notes.pages.delete("n1")]
        said["events"] = [event.type for event in store.events.read("note:n1")]
        try:
            notes.pages.get("n1")
        except NotFound as error:
            said["gone"] = str(error)
        lines = BytesIO()
        said["export"] = [export(store, lines, session_id="n3").kind, lines.getvalue().count(b"line of n3")]
        said["erase"] = erase(store, owner="ada").tables
        said["blanked"] = [event.data.get("erased") for event in store.events.read("note:n2")]
        said["doctor"] = [finding.message for finding in doctor(store) if "note" in finding.subject]
    said["async"] = asyncio.run(listed(url))
    with Store.open(url) as store:
        now = store.runtime.clock
        store.runtime.clock = lambda: now() + timedelta(days=2)
        said["prunable"] = [name for name in prunable() if "note" in name]
        said["prune"] = [prune(store, "notes", older_than=timedelta(days=days)).tables for days in (3, 1)]
    return said


print(json.dumps(walk(sys.argv[1])))
