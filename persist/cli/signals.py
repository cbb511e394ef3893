"""`persist signals`: what runs are told."""

import json

import click

from persist.cli.database import Database, as_json, on_database, quiet
from persist.cli.groups import Group
from persist.cli.output import Paint, columns, inline, instant, say, say_json, say_json_list
from persist.cli.run_lines import cut
from persist.db.values.json import parse
from persist.workflows.schemas import Signal

_PAYLOAD = 60


@click.group(cls=Group, short_help="Tell runs something, and list what they were told.")
def signals() -> None:
    """Tell workflow runs something, and list what they were told."""


@signals.command(short_help="Tell a run something: if it waits for that, it goes on.")
@click.argument("run")
@click.argument("name")
@on_database
@click.option("--payload", metavar="JSON", default="null", help="What the run gets with it.")
@click.option("--key", metavar="KEY", help="Of all signals to the run with one key the first is sent.")
@as_json
@quiet("Print nothing.")
def send(run: str, name: str, database: Database, payload: str, key: str | None, as_json: bool, quiet: bool) -> None:
    """Tell a run something. If it waits for a signal of this NAME, it goes on; otherwise it finds the signal later."""
    try:
        value = parse(payload)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="--payload") from None
    with database.open_existing() as store, store.begin() as tx:
        signal = tx.workflows.signals.send(run, name, value, idempotency_key=key)
        status = tx.workflows.runs.get(run).status
    if as_json:
        say_json(signal.model_dump(mode="json"))
    elif not quiet:
        say(f"Sent {inline(signal.name)}; run {inline(run)} is {inline(status)}.")


@signals.command(short_help="List what a run was told, in its order.")
@click.argument("run")
@on_database
@as_json
@quiet("Print the names alone.")
def ls(run: str, database: Database, as_json: bool, quiet: bool) -> None:
    """List what a run was told, taken or not. With --json: an object with `items` and `cursor`."""
    with database.open(read_only=True) as store, store.read() as tx:
        found = tx.workflows.signals.list(run)
    if as_json:
        say_json_list(signal.model_dump(mode="json") for signal in found)
    elif quiet:
        for signal in found:
            say(inline(signal.name))
    elif not found:
        say("The run was told nothing.", err=True)
    else:
        head, *rows = columns([("SEQ", "NAME", "SENT (UTC)", "TAKEN (UTC)", "PAYLOAD"), *map(_row, found)])
        say(Paint()(head, bold=True))
        for row in rows:
            say(row)


def _row(signal: Signal) -> tuple[str, ...]:
    taken = "-" if signal.taken_at is None else instant(signal.taken_at)
    payload = "(timed out)" if signal.timed_out else cut(json.dumps(signal.payload, ensure_ascii=False), _PAYLOAD)
    return str(signal.seq), inline(signal.name), instant(signal.sent_at), taken, payload
