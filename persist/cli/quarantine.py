"""`persist quarantine`: rows that doctor set aside, since nobody can read them."""

import click

from persist.cli.database import Database, as_json, on_database, on_named_database, quiet
from persist.cli.groups import Group
from persist.cli.output import Paint, columns, inline, instant, say, say_json, say_json_list, shortened
from persist.maintenance import quarantined, quarantined_row, restore_row


@click.group(cls=Group, short_help="List, show and bring back rows that were set aside.")
def quarantine() -> None:
    """Rows that `persist doctor --fix` set aside, since one of their values, or of a row they depend on, cannot be read."""


@quarantine.command(short_help="List them, in the order in which they were moved.")
@on_named_database
@click.option("--after", metavar="ID", help="Those after this one.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@as_json
def ls(database: Database, after: str | None, limit: int, as_json: bool) -> None:
    """List the rows in quarantine. Those of one GROUP were moved, and come back, together.

    With --json: an object with `items` and `cursor`, null on the last page.
    """
    with database.open(read_only=True) as store:
        found = quarantined(store, after=after, limit=limit + 1)
    found, cursor = found[:limit], found[limit - 1].id if len(found) > limit else None
    if as_json:
        say_json_list((row.model_dump(mode="json", exclude={"row"}) for row in found), cursor)
    elif not found:
        say("Nothing is in quarantine.")
    else:
        head = ("ID", "GROUP", "MOVED", "ROW", "CAUSE")
        rows = [
            (row.id, row.group_id, instant(row.moved_at), inline(f"{row.table} {row.key}"), inline(row.cause)) for row in found
        ]
        first, *lines = columns([head, *rows])
        say(Paint()(first, bold=True))
        for line in lines:
            say(line)
        if cursor is not None:
            say(f"There are more: add --after {cursor}", err=True)


@quarantine.command(short_help="Print what a row held.")
@click.argument("id")
@on_database
@as_json
def show(id: str, database: Database, as_json: bool) -> None:
    """Print a row in quarantine: what each of its columns held, and in which form."""
    with database.open(read_only=True) as store:
        row = quarantined_row(store, id)
    if as_json:
        say_json(row.model_dump(mode="json"))
        return
    say(f"{inline(row.table)} {inline(row.key)}, moved {instant(row.moved_at)} UTC")
    say(inline(row.cause))
    for line in columns([(inline(name), *_form(cell)) for name, cell in (row.row or {}).items()]):
        say(f"  {line}")


@quarantine.command(short_help="Bring a row back as it was.")
@click.argument("id")
@on_database
@as_json
@quiet("Print nothing.")
def restore(id: str, database: Database, as_json: bool, quiet: bool) -> None:
    """Bring a row back byte for byte, with the rows that were moved with it. It cannot be read then any more than before."""
    with database.open_existing() as store:
        found = restore_row(store, id)
    if as_json:
        say_json_list(row.model_dump(mode="json", exclude={"row"}) for row in found)
    elif not quiet:
        for row in found:
            say(inline(f"{row.table} {row.key}"))
        say(f"Brought back {len(found):,} rows.", err=True)


def _form(cell: dict[str, object] | None) -> tuple[str, str]:
    if cell is None:
        return "null", ""
    ((form, value),) = cell.items()
    return form, shortened(value, 100)
