"""`persist checkpoints`: threads of graph runners, and the steps of one."""

import click

from persist.checkpoints.schemas import Checkpoint
from persist.cli.database import Database, as_json, on_database, on_named_database, quiet
from persist.cli.groups import Group
from persist.cli.output import Paint, columns, inline, instant, say, say_json, say_json_list, say_table


@click.group(cls=Group, short_help="List and show threads of graph runners.")
def checkpoints() -> None:
    """List and show threads of graph runners."""


@checkpoints.command(short_help="List threads, the one used last first.")
@on_named_database
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@click.option("--after", metavar="CURSOR", help="The page after the one that ended with this cursor.")
@as_json
@quiet("Print the ids alone.")
def ls(database: Database, limit: int, after: str | None, as_json: bool, quiet: bool) -> None:
    """List threads, the one used last first. With --json: an object with `items` and `cursor`, null on the last page."""
    with database.open(read_only=True) as store, store.read() as tx:
        page = tx.checkpoints.threads.list(limit=limit, after=after)
    if as_json:
        say_json_list((thread.model_dump(mode="json") for thread in page.items), page.cursor)
    elif quiet:
        for thread in page.items:
            say(inline(thread.id))
    elif not page.items:
        say("No threads.", err=True)
    else:
        rows = [(inline(thread.id), instant(thread.created_at), instant(thread.updated_at)) for thread in page.items]
        say_table([("THREAD", "CREATED (UTC)", "USED (UTC)"), *rows])
        if page.cursor is not None:
            say(f"There are more: add --after {page.cursor}", err=True)


@checkpoints.command(short_help="Print a thread and its newest checkpoints.")
@click.argument("thread")
@on_database
@click.option("--namespace", help="Only checkpoints of this namespace; '' is the graph itself.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many of the newest.")
@as_json
@quiet("Leave out what is known of the thread as a whole.")
def show(thread: str, database: Database, namespace: str | None, limit: int, as_json: bool, quiet: bool) -> None:
    """Print a thread and its newest checkpoints, newest first. With --json: an object with `thread` and `checkpoints`.

    Values of channels are what the runner's serializer made of them, and are not shown.
    """
    with database.open(read_only=True) as store, store.read() as tx:
        found = tx.checkpoints.threads.get(thread)
        steps = tx.checkpoints.states.page(thread_id=thread, namespace=namespace, limit=limit)
    if as_json:
        say_json({"thread": found.model_dump(mode="json"), "checkpoints": [_dumped(step) for step in steps]})
        return
    paint = Paint()
    if not quiet:
        known = [("thread", inline(found.id)), ("created", f"{instant(found.created_at)} UTC")]
        for line in columns([*known, ("used", f"{instant(found.updated_at)} UTC")]):
            name, _, value = line.partition(" ")
            say(f"{paint(name, dim=True)} {value}")
        say("")
    say_table([("CHECKPOINT", "NAMESPACE", "STEP", "SOURCE", "RUN", "CREATED (UTC)", "CHANNELS"), *map(_row, steps)])


def _row(step: Checkpoint) -> tuple[str, ...]:
    known = step.metadata if isinstance(step.metadata, dict) else {}
    versions: object = step.versions  # another program may have written anything
    return (
        inline(step.id),
        inline(step.namespace or "-"),
        inline(str(known.get("step", "-"))),
        inline(str(known.get("source", "-"))),
        inline(step.run_id or "-"),
        instant(step.created_at),
        f"{len(versions):,}" if isinstance(versions, dict) else "-",
    )


def _dumped(step: Checkpoint) -> dict[str, object]:
    return step.model_dump(mode="json", exclude={"head"})
