"""`persist programs`: runs of programs, in files of their own or in one database."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from persist.cli.database import as_json, place_of, quiet
from persist.cli.groups import Group
from persist.cli.output import Paint, columns, inline, instant, say, say_json, say_json_list, shortened
from persist.cli.program_lines import binding_row, execution_lines, header, resume_lines
from persist.programs.schemas import ProgramRun, RunStatus
from persist.single_owner_files.run_files import create_run_file, list_run_files, open_run_file
from persist.store.store import Store

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, repr=False)  # the URL may hold a password
class Place:
    """Where runs are: in one database, or in files below a folder."""

    url: str | Path | None
    schema: str | None
    root: Path

    def open(self, run: str) -> Store:
        """The store of one run, for reading."""
        if self.url is not None:
            return Store.open(self.url, schema=self.schema, read_only=True)
        given = Path(run)
        path = given if given.exists() else self.root / ".prose" / "runs" / run
        return open_run_file(path, read_only=True)

    @staticmethod
    def id_in(store: Store, run: str) -> str:
        """The run's id, where its path was given."""
        return store.run_id if store.run_id is not None and Path(run).exists() else run


def on_runs(command: F) -> F:
    """--root, --url and --schema; the command receives `place`."""

    def invoke(*args: Any, root: Path | None, url: str | None, schema: str | None, **rest: Any) -> Any:
        place = Place(place_of(url) if root is None and url is not None else None, schema, root or Path())
        return command(*args, place=place, **rest)

    invoke.__doc__, invoke.__name__ = command.__doc__, command.__name__
    invoke.__dict__.update(command.__dict__)
    folder = click.Path(exists=True, file_okay=False, path_type=Path)
    wrapped = click.option("--schema", envvar="PERSIST_SCHEMA_NAME", help="The schema on Postgres.")(invoke)
    wrapped = click.option(
        "--url", envvar="PERSIST_DATABASE_URL", help="A database that holds runs: FILE, sqlite:///FILE or postgresql://…"
    )(wrapped)
    root = click.option("--root", type=folder, help="The project whose run files are meant; without --url this folder.")
    return root(wrapped)  # type: ignore[return-value]  # click's options go on whatever they decorate


@click.group(cls=Group, short_help="Make, list and show runs of programs.")
def programs() -> None:
    """Make, list and show runs of programs.

    Runs live in files below a project (--root), or in one database (--url or PERSIST_DATABASE_URL). RUN is an id, or the path
    of a run's folder or file.
    """


@programs.command(short_help="Make a run file.")
@click.argument("program", required=False)
@click.option("--root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".", help="The project's folder.")
@click.option("--strict", is_flag=True, help="Let nobody but persist write run, execution and imports.")
@as_json
@quiet("Print the id alone.")
def new(program: str | None, root: Path, strict: bool, as_json: bool, quiet: bool) -> None:
    """Make a run below --root, running: .prose/runs/ID/state.db, with a copy of PROGRAM beside it."""
    with create_run_file(root, program_path=program, strict=strict) as store:
        run, path = store.run_id or "", str(store.path)
    if as_json:
        say_json({"id": run, "path": path})
    else:
        say(inline(run if quiet else path))


@programs.command(short_help="List runs, the last started first.")
@on_runs
@click.option("--status", type=click.Choice([status.value for status in RunStatus]), help="Only runs with this status.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@as_json
@quiet("Print the ids alone.")
def ls(place: Place, status: str | None, limit: int, as_json: bool, quiet: bool) -> None:
    """List runs, the last started first. With --json: an object with `items` and `cursor`."""
    found = _in_files(place.root, status, limit) if place.url is None else _in_database(place, status, limit)
    if as_json:
        say_json_list(run.model_dump(mode="json", exclude={"program_source"}) for run in found)
    elif quiet:
        for run in found:
            say(inline(run.id))
    elif not found:
        say("No runs.", err=True)
    else:
        first, *rows = columns([("RUN", "STATUS", "STARTED (UTC)", "PROGRAM"), *map(_row, found)])
        say(Paint()(first, bold=True))
        for row in rows:
            say(row)


@programs.command(short_help="Print one run and its statements.")
@click.argument("run")
@on_runs
@as_json
@quiet("Print the status alone.")
def show(run: str, place: Place, as_json: bool, quiet: bool) -> None:
    """Print one run and its statements as a tree. With --json: an object with `run` and `executions`."""
    with place.open(run) as store, store.read() as tx:
        found = tx.programs.runs.get(place.id_in(store, run))
        executions = tx.programs.executions.list(found.id)
    if as_json:
        rows = [execution.model_dump(mode="json") for execution in executions]
        say_json({"run": found.model_dump(mode="json"), "executions": rows})
    elif quiet:
        say(inline(str(found.status)))
    else:
        for line in [*header(found), *execution_lines(executions, Paint())]:
            say(line)


@programs.command("resume-point", short_help="Print where an interrupted run goes on.")
@click.argument("run")
@on_runs
@as_json
@quiet("Print the ids of the executing statements alone.")
def resume_point(run: str, place: Place, as_json: bool, quiet: bool) -> None:
    """Print what executes, and how parallel blocks and loops stand. With --json: bindings and memories too."""
    with place.open(run) as store, store.read() as tx:
        point = tx.programs.runs.resume_point(place.id_in(store, run))
    if as_json:
        say_json(point.model_dump(mode="json"))
    elif quiet:
        for execution in point.executing:
            say(str(execution.id))
    else:
        for line in [*header(point.run), *resume_lines(point, Paint())]:
            say(line)


@programs.command(short_help="Print the values of a run.")
@click.argument("run")
@click.argument("name", required=False)
@on_runs
@click.option("--frame", type=click.IntRange(0), help="With NAME: what it means in the frame of this execution.")
@as_json
@quiet("Print the names alone.")
def bindings(run: str, name: str | None, place: Place, frame: int | None, as_json: bool, quiet: bool) -> None:
    """Print every value of a run, cut when long; with NAME that value, whole, as the root or --frame sees it."""
    with place.open(run) as store, store.read() as tx:
        id = tx.programs.runs.get(place.id_in(store, run)).id
        if name is not None:
            found = [tx.programs.bindings.resolve(id, name, execution_id=frame)]
        else:
            found = tx.programs.bindings.list(id)
    if as_json:
        rows = [binding.model_dump(mode="json") for binding in found]
        if name is None:
            say_json_list(rows)
        else:
            say_json(rows[0])
    elif quiet:
        for binding in found:
            say(inline(binding.name))
    elif name is not None:
        say(shortened(found[0].value or "", maximum=2**31))
    elif not found:
        say("No values.", err=True)
    else:
        first, *lines = columns([("NAME", "FRAME", "KIND", "UPDATED (UTC)", "VALUE"), *map(binding_row, found)])
        say(Paint()(first, bold=True))
        for line in lines:
            say(line)


def _in_files(root: Path, status: str | None, limit: int) -> list[ProgramRun]:
    found: list[ProgramRun] = []
    for path in reversed(list_run_files(root)):
        with open_run_file(path, read_only=True) as store, store.read() as tx:
            found += [run for run in tx.programs.runs.list(limit=1000).items if status in (None, run.status)]
        if len(found) >= limit:
            break
    return found[:limit]


def _in_database(place: Place, status: str | None, limit: int) -> list[ProgramRun]:
    with place.open("") as store, store.read() as tx:
        return tx.programs.runs.list(status=status, limit=limit).items


def _row(run: ProgramRun) -> tuple[str, ...]:
    started = "-" if run.started_at is None else instant(run.started_at)
    return inline(run.id), inline(str(run.status)), started, inline(run.program_path or "-")
