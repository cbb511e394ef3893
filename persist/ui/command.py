"""`persist ui`: the pages over a store in the browser, served from this machine."""

import webbrowser
from functools import partial
from pathlib import Path

import click

from persist.cli.database import Database, on_named_database
from persist.cli.output import inline, say
from persist.cli.root import Failed, redacted
from persist.store.store import Store
from persist.ui.serving import PORT, Server
from persist.ui.stores import Collection, Folder, ManyStores, OneStore, TenantsOfServer
from persist.ui.views import Site


@click.command(short_help="Look at a store in the browser.")
@on_named_database
@click.option("--port", type=click.IntRange(0, 65535), help=f"Where; without it {PORT}, or the next one that is free.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Who reaches it; any but this machine needs a token.")
@click.option("--open/--no-open", "in_browser", default=False, help="Open the browser, too.")
@click.option(
    "--session-logs", envvar="PERSIST_LOG_HOME", type=click.Path(path_type=Path), help="The folder that holds projects/."
)
@click.option("--allow-changes", is_flag=True, help="With forms: answer, stop, pause, resume, cancel, retry, switch.")
@click.option("--token", help="What others must know; without it one is made where it is needed.")
@click.option("--all-schemas", is_flag=True, help="All tenants of a Postgres database, a schema each.")
def ui(
    database: Database,
    port: int | None,
    host: str,
    in_browser: bool,
    session_logs: Path | None,
    allow_changes: bool,
    token: str | None,
    all_schemas: bool,
) -> None:
    """Show what runs, what waits for whom, what was said and what it cost, as pages in the browser.

    DATABASE is a file, a URL, or a folder: then all stores below it are listed, those of instances, runs and tenants. The pages
    only look, and nothing is sent anywhere; with --allow-changes they have forms, whose changes name `persist --actor`.
    """
    if session_logs is not None and not session_logs.is_dir():
        raise Failed(f"There is no folder {inline(str(session_logs))}.")
    site = Site(_title(database, all_schemas), allow_changes, session_logs)
    server = Server(_stores(database, site, all_schemas=all_schemas), host, port, token)
    say(f"Open {server.address} in your browser; Ctrl-C stops the server." + ("" if allow_changes else " The pages only look."))
    if in_browser:
        webbrowser.open(server.address)
    server.serve_until_stopped()


def _title(database: Database, all_schemas: bool) -> str:
    if isinstance(database.url, Path):
        return database.url.resolve().name or "persist"
    return (
        "tenants" if all_schemas else database.schema or redacted(database.url).rpartition("/")[2].partition("?")[0] or "persist"
    )


def _stores(database: Database, site: Site, *, all_schemas: bool) -> OneStore | ManyStores:
    several: Collection | None = None
    if isinstance(database.url, Path) and database.url.is_dir():
        several = Folder(database.url)
    elif all_schemas:
        several = TenantsOfServer(str(database.url))
    if several is not None:
        return ManyStores(several, site)
    one = OneStore(partial(_opened, database, read_only=not site.allow_changes), site)
    one.check()
    return one


def _opened(database: Database, *, read_only: bool) -> Store:
    """Nothing is made or upgraded: an older schema is what the page then says."""
    return Store.open(database.url, schema=database.schema, read_only=read_only, migrate=False)
