"""`persist programs`: runs of programs, in separate files or in one database."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import click

from persist.cli.database import place_of
from persist.cli.nouns import Answer, Noun, Table, answers, limit
from persist.cli.output import Paint, inline, instant, shortened
from persist.db.concurrency.ownership import place_of as place_of_owner
from persist.programs.schemas import Binding, ExecutionStatus, ProgramExecution, ProgramRun, ResumePoint, RunStatus
from persist.single_owner_files import create_run_file, list_run_files, open_run_file
from persist.store.store import Store
from persist.store.transaction import Transaction

F = TypeVar("F", bound=Callable[..., Any])
_COLOURS: dict[str, str] = {
    ExecutionStatus.COMPLETED: "green",
    ExecutionStatus.FAILED: "red",
    ExecutionStatus.EXECUTING: "yellow",
}
_LONGEST = 100


@dataclass(frozen=True, slots=True, repr=False)  # the URL may hold a password
class Place:
    """Where runs are: in one database, or in files below a folder."""

    url: str | Path | None
    schema: str | None
    root: Path

    def open(self, run: str) -> Store:
        if self.url is not None:
            return Store.open(self.url, schema=self.schema, read_only=True)
        given = Path(run)
        path = given if given.exists() else self.root / ".prose" / "runs" / run
        return open_run_file(path, read_only=True)

    @staticmethod
    def id_in(store: Store, run: str) -> str:
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


programs = Noun(
    "programs",
    """Make, list and show runs of programs.

    Runs live in files below a project (--root), or in one database (--url or PERSIST_DATABASE_URL). RUN is an id, or the path
    of a run's folder or file.
    """,
)
RUNS = Table[ProgramRun](
    "No runs.",
    ("RUN", "STATUS", "STARTED (UTC)", "PROGRAM"),
    lambda run: (run.id, str(run.status), run.started_at, run.program_path or "-"),
    json=lambda run: run.model_dump(mode="json", exclude={"program_source"}),
)
BINDINGS = Table[Binding](
    "No values.",
    ("NAME", "FRAME", "KIND", "UPDATED (UTC)", "VALUE"),
    lambda binding: (
        binding.name,
        None if binding.execution_id is None else str(binding.execution_id),
        str(binding.kind or "-"),
        binding.updated_at,
        _beginning(binding),
    ),
    name=lambda binding: binding.name,
)


@programs.command(short_help="Make a run file.")
@click.argument("program", required=False)
@click.option("--root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".", help="The project's folder.")
@click.option("--strict", is_flag=True, help="Let nobody but persist write run, execution and imports.")
@answers("Print the id alone.")
def new(program: str | None, root: Path, strict: bool) -> Answer:
    """Make a run below --root, running: .prose/runs/ID/state.db, with a copy of PROGRAM beside it."""
    with create_run_file(root, program_path=program, strict=strict) as store:
        run, path = store.run_id or "", str(store.path)
    return Answer({"id": run, "path": path}, [inline(path)], [inline(run)])


@programs.command(short_help="List runs, the last started first.")
@on_runs
@click.option("--status", type=click.Choice([status.value for status in RunStatus]), help="Only runs with this status.")
@limit()
@answers("Print the ids alone.")
def ls(place: Place, status: str | None, limit: int) -> Answer:
    """List runs, the last started first. With --json: an object with `items` and `cursor`."""
    return RUNS.all(_in_files(place.root, status, limit) if place.url is None else _in_database(place, status, limit))


@programs.command(short_help="Print one run and its statements.")
@click.argument("run")
@on_runs
@answers("Print the status alone.")
def show(run: str, place: Place) -> Answer:
    """Print one run and its statements as a tree. With --json: an object with `run` and `executions`."""
    with place.open(run) as store, store.read() as tx:
        return run_of(tx, place.id_in(store, run))


@programs.command("resume-point", short_help="Print where an interrupted run goes on.")
@click.argument("run")
@on_runs
@answers("Print the ids of the executing statements alone.")
def resume_point(run: str, place: Place) -> Answer:
    """Print what executes, and how parallel blocks and loops stand. With --json: bindings and memories too."""
    with place.open(run) as store, store.read() as tx:
        point = tx.programs.runs.resume_point(place.id_in(store, run))
    return Answer(point, chain(_header(point.run), _resume_lines(point, Paint())), (str(one.id) for one in point.executing))


@programs.command(short_help="Print the values of a run.")
@click.argument("run")
@click.argument("name", required=False)
@on_runs
@click.option("--frame", type=click.IntRange(0), help="With NAME: what it means in the frame of this execution.")
@answers("Print the names alone.")
def bindings(run: str, name: str | None, place: Place, frame: int | None) -> Answer:
    """Print every value of a run, cut when long; with NAME that value, whole, as the root or --frame sees it."""
    with place.open(run) as store, store.read() as tx:
        id = tx.programs.runs.get(place.id_in(store, run)).id
        return BINDINGS.all(tx.programs.bindings.list(id)) if name is None else value_of(tx, id, name, frame)


def run_of(tx: Transaction, id: str) -> Answer:
    """One run and its statements."""
    found = tx.programs.runs.get(id)
    executions = tx.programs.executions.list(id)
    lines = chain(_header(found), _execution_lines(executions, Paint()))
    return Answer({"run": found, "executions": executions}, lines, [inline(str(found.status))])


def value_of(tx: Transaction, run: str, name: str, frame: int | None = None) -> Answer:
    """A value, whole, as a frame of the run or its root sees it."""
    found = tx.programs.bindings.resolve(run, name, execution_id=frame)
    return Answer(found, [shortened(found.value or "", maximum=2**31)], [inline(found.name)])


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


def _beginning(binding: Binding) -> str:
    value = shortened(binding.value or "", _LONGEST)
    return value if binding.attachment_path is None else f"{inline(binding.attachment_path)} {value}".rstrip()


def _header(run: ProgramRun) -> Iterator[str]:
    yield f"run      {inline(run.id)}"
    if run.program_path is not None:
        yield f"program  {inline(run.program_path)}"
    yield f"status   {inline(str(run.status))}"
    if run.started_at is not None:
        yield f"started  {instant(run.started_at)} UTC"
    if run.held_by is not None:
        host, pid = place_of_owner(run.held_by)
        seen = "" if run.seen_at is None else f", seen {instant(run.seen_at)} UTC"
        yield f"run by   {inline(host)}{'' if pid is None else f', process {pid}'}{seen}"


def _execution_lines(executions: Sequence[ProgramExecution], paint: Paint) -> Iterator[str]:
    return (_execution(one, depth, paint) for one, depth in as_tree(executions))


def as_tree(executions: Sequence[ProgramExecution]) -> Iterator[tuple[ProgramExecution, int]]:
    """The statements, each below its parent, with how deep they stand; one whose parent is missing, or its own, stands at 0."""
    ids = {one.id for one in executions}
    below: dict[int | None, list[ProgramExecution]] = {}
    for one in executions:
        below.setdefault(one.parent_id if one.parent_id in ids else None, []).append(one)
    shown: set[int] = set()
    for root in [*below.get(None, []), *executions]:
        pending = [(root, 0)]
        while pending:
            one, depth = pending.pop()
            if one.id in shown:
                continue
            shown.add(one.id)
            yield one, depth
            pending += [(child, depth + 1) for child in reversed(below.get(one.id, []))]


def _resume_lines(point: ResumePoint, paint: Paint) -> Iterator[str]:
    for one in point.executing:
        yield _execution(one, 0, paint)
    for block in point.parallel:
        branches = ", ".join(f"{inline(name)} {inline(state)}" for name, state in block.branches.items())
        yield f"  parallel {inline(block.parallel_id)} ({inline(block.strategy or 'all')}): {branches}"
    for loop in point.loops:
        maximum = "" if loop.max_iterations is None else f" of at most {loop.max_iterations}"
        yield f"  loop {inline(loop.loop_id)}: iteration {loop.current_iteration or 0}{maximum}"
    yield f"  {len(point.bindings)} values, {len(point.agents)} agents"


def _execution(one: ProgramExecution, depth: int, paint: Paint) -> str:
    status = str(one.status or "-")
    text = shortened(one.statement_text or "", _LONGEST)
    error = "" if one.error_message is None else f"  {paint(shortened(one.error_message, _LONGEST), dim=True)}"
    return f"  {'  ' * depth}{one.id}  {paint(inline(status), fg=_COLOURS.get(status))}  {text}{error}"
