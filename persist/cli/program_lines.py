"""A run of a program as lines of text that a person can read."""

from collections.abc import Iterator, Sequence

from persist.cli.output import Paint, inline, instant, shortened
from persist.db.concurrency.process_owners import place_of
from persist.programs.schemas import Binding, ExecutionStatus, ProgramExecution, ProgramRun, ResumePoint

_COLOURS: dict[str, str] = {
    ExecutionStatus.COMPLETED: "green",
    ExecutionStatus.FAILED: "red",
    ExecutionStatus.EXECUTING: "yellow",
}
_LONGEST = 100


def header(run: ProgramRun) -> Iterator[str]:
    """What is known of the run itself."""
    yield f"run      {inline(run.id)}"
    if run.program_path is not None:
        yield f"program  {inline(run.program_path)}"
    yield f"status   {inline(str(run.status))}"
    if run.started_at is not None:
        yield f"started  {instant(run.started_at)} UTC"
    if run.held_by is not None:
        host, pid = place_of(run.held_by)
        seen = "" if run.seen_at is None else f", seen {instant(run.seen_at)} UTC"
        yield f"run by   {inline(host)}{'' if pid is None else f', process {pid}'}{seen}"


def execution_lines(executions: Sequence[ProgramExecution], paint: Paint) -> Iterator[str]:
    """The statements, each below its parent; one whose parent is missing, or its own, stands at the margin."""
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
            yield _execution(one, depth, paint)
            pending += [(child, depth + 1) for child in reversed(below.get(one.id, []))]


def resume_lines(point: ResumePoint, paint: Paint) -> Iterator[str]:
    """What is under way, and how much else there is."""
    for one in point.executing:
        yield _execution(one, 0, paint)
    for block in point.parallel:
        branches = ", ".join(f"{inline(name)} {inline(state)}" for name, state in block.branches.items())
        yield f"  parallel {inline(block.parallel_id)} ({inline(block.strategy or 'all')}): {branches}"
    for loop in point.loops:
        maximum = "" if loop.max_iterations is None else f" of at most {loop.max_iterations}"
        yield f"  loop {inline(loop.loop_id)}: iteration {loop.current_iteration or 0}{maximum}"
    yield f"  {len(point.bindings)} values, {len(point.agents)} agents"


def binding_row(binding: Binding) -> tuple[str, ...]:
    """Name, frame, kind, instant and the beginning of the value."""
    frame = "-" if binding.execution_id is None else str(binding.execution_id)
    updated = "-" if binding.updated_at is None else instant(binding.updated_at)
    value = shortened(binding.value or "", _LONGEST)
    if binding.attachment_path is not None:
        value = f"{inline(binding.attachment_path)} {value}".rstrip()
    return inline(binding.name), frame, inline(str(binding.kind or "-")), updated, value


def _execution(one: ProgramExecution, depth: int, paint: Paint) -> str:
    status = str(one.status or "-")
    text = shortened(one.statement_text or "", _LONGEST)
    error = "" if one.error_message is None else f"  {paint(shortened(one.error_message, _LONGEST), dim=True)}"
    return f"  {'  ' * depth}{one.id}  {paint(inline(status), fg=_COLOURS.get(status))}  {text}{error}"
