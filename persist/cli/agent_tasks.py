"""`persist agent_tasks`: tasks that agents do for others."""

import click

from persist.cli.database import Database, as_json, on_database, on_named_database, quiet
from persist.cli.groups import Group
from persist.cli.output import Paint, columns, inline, instant, say, say_json, say_json_list, say_table


@click.group("agent_tasks", cls=Group, short_help="List and show tasks that agents do for others.")
def agent_tasks() -> None:
    """List and show tasks that agents do for others."""


@agent_tasks.command(short_help="List tasks of every owner, the one saved last first.")
@on_named_database
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@click.option("--after", metavar="CURSOR", help="The page after the one that ended with this cursor.")
@as_json
@quiet("Print the ids alone.")
def ls(database: Database, limit: int, after: str | None, as_json: bool, quiet: bool) -> None:
    """List tasks, the one saved last first. With --json: an object with `items` and `cursor`, null on the last page."""
    with database.open(read_only=True) as store, store.read() as tx:
        page = tx.agent_tasks.tasks.latest(limit=limit, after=after)
    if as_json:
        say_json_list((task.model_dump(mode="json") for task in page.items), page.cursor)
    elif quiet:
        for task in page.items:
            say(inline(task.id))
    elif not page.items:
        say("No tasks.", err=True)
    else:
        rows = [
            (inline(task.id), inline(task.task_id), inline(task.owner or "-"), inline(task.state), instant(task.updated_at))
            for task in page.items
        ]
        say_table([("ID", "TASK", "OWNER", "STATE", "SAVED (UTC)"), *rows])
        if page.cursor is not None:
            say(f"There are more: add --after {page.cursor}", err=True)


@agent_tasks.command(short_help="Print a task and the pieces that it consists of.")
@click.argument("task")
@on_database
@as_json
@quiet("Leave out what is known of the task as a whole.")
def show(task: str, database: Database, as_json: bool, quiet: bool) -> None:
    """Print a task, by the id that `ls` prints, and its pieces. With --json: an object with `task` and `pieces`.

    Messages and artifacts are what their protocol made of them, and are not shown.
    """
    with database.open(read_only=True) as store, store.read() as tx:
        found = tx.agent_tasks.tasks.by_id(task)
    pieces = [(piece.kind, piece.position, piece.part, len(piece.data)) for piece in found.pieces]
    if as_json:
        names = ("kind", "position", "part", "bytes")
        dumped = [dict(zip(names, piece, strict=True)) for piece in pieces]
        say_json({"task": found.task.model_dump(mode="json"), "pieces": dumped})
        return
    paint = Paint()
    if not quiet:
        row = found.task
        known = [("task", inline(row.task_id)), ("owner", inline(row.owner or "-")), ("context", inline(row.context_id or "-"))]
        for line in columns([*known, ("state", inline(row.state)), ("saved", f"{instant(row.updated_at)} UTC")]):
            name, _, value = line.partition(" ")
            say(f"{paint(name, dim=True)} {value}")
        say("")
    rows = [(inline(kind), f"{position}", f"{part}" if part >= 0 else "-", f"{size:,}") for kind, position, part, size in pieces]
    say_table([("KIND", "POSITION", "PART", "BYTES"), *rows])
