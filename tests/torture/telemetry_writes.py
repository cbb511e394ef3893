"""Telemetry with its trimmed windows, tasks, checkpoints of graphs, memories, and programs in a shared database."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from persist.framework_state.checkpoints.schemas import Blob, Stored, Write
from persist.store.transaction import Transaction
from tests.torture.kill_rounds import Script, Step

_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_I, _W = "box-1", "work"
_WINDOWS = {
    f"{table}_{what}": count
    for table in ("status_log", "usage_samples", "tool_history")
    for what, count in (("keep", 5), ("trim_every", 2))
}


def telemetry() -> Sequence[Step]:
    """Windows that are trimmed on nearly every insert: a trim and its insert are one."""
    steps: list[Step] = []
    for n in range(9):
        steps += [partial(_status, n=n), partial(_usage, n=n), partial(_tool, n=n)]
    url = "https://github.com/owner/repo/issues/7"
    found = [{"id": f"t{n}", "source_id": "github", "kind": "issue", "title": "It fails"} for n in range(3)]
    return [
        *steps,
        lambda tx: tx.telemetry.tags.record("repo", url, instance_id=_I),
        lambda tx: tx.telemetry.links.upsert(url, fetched_at=_AT, issue_state="open", instance_id=_I),
        lambda tx: tx.telemetry.links.record_error(url, "502", at=_AT, instance_id=_I),
        lambda tx: tx.telemetry.tasks.poll(found, workspace_id=_W),
        lambda tx: tx.telemetry.tasks.claim(_I, max_parallel=2, workspace_id=_W),
        lambda tx: tx.telemetry.tasks.claim(_I, max_parallel=2, workspace_id=_W),
        lambda tx: tx.telemetry.tasks.complete("t0", outcome="fixed", workspace_id=_W),
        lambda tx: tx.telemetry.tasks.fail("t1", outcome="no", workspace_id=_W),
        lambda tx: tx.telemetry.tasks.retry("t1", workspace_id=_W),
        lambda tx: tx.telemetry.tasks.cancel("t2", workspace_id=_W),
        lambda tx: tx.telemetry.tasks.purge(timedelta(seconds=1), workspace_id=_W),
    ]


def graph() -> Sequence[Step]:
    """A thread with a growing list: a checkpoint has all of its values, and an element is stored once."""
    steps: list[Step] = []
    for n in range(6):
        steps += [partial(_checkpoint, n=n), partial(_writes, n=n)]
    return [
        *steps,
        lambda tx: tx.checkpoints.threads.copy("thread", "copied"),
        lambda tx: tx.checkpoints.threads.keep_latest("thread"),
        lambda tx: tx.checkpoints.memories.put(("a", "b"), "k", {"v": 1}, ttl_minutes=0.1, embeddings={"v": bytes(16)}),
        lambda tx: tx.checkpoints.memories.put(("a",), "k", {"v": 2}),
        lambda tx: tx.checkpoints.memories.put(("a",), "k", {"v": 3}),
        lambda tx: tx.checkpoints.memories.refresh(tx.checkpoints.memories.list(("a",))),
        lambda tx: tx.checkpoints.threads.delete_runs(["run 3"]),
        lambda tx: tx.checkpoints.threads.delete("copied"),
        lambda tx: tx.checkpoints.memories.delete(("a",), "k"),
    ]


def program() -> Sequence[Step]:
    """A program's run beside others: its tree of statements, its values, agents and imports."""
    run = "20260102-030405-abcdef"
    return [
        lambda tx: tx.programs.runs.create(program_source="let x = 1", id=run),
        lambda tx: tx.programs.executions.begin(run, statement_index=1, statement_text="do a()", metadata={"n": [1]}),
        lambda tx: tx.programs.executions.begin(run, statement_index=2, statement_text="inner", parent_id=_last(tx, run)),
        lambda tx: tx.programs.bindings.bind(run, "x", "one", execution_id=_last(tx, run)),
        lambda tx: tx.programs.bindings.bind(run, "x", "two" * 2000, execution_id=_last(tx, run)),
        lambda tx: tx.programs.bindings.bind(run, tx.programs.bindings.next_anonymous(run), "unnamed", kind="const"),
        lambda tx: tx.programs.executions.fail(run, _last(tx, run), "no"),
        lambda tx: tx.programs.executions.record_retry(run, _last(tx, run), attempt=1, max_retries=3),
        lambda tx: tx.programs.executions.complete(run, _last(tx, run)),
        lambda tx: tx.programs.agents.start(run, "captain", resume=False),
        lambda tx: tx.programs.agents.add_segment(run, "captain", prompt="p", summary="s"),
        lambda tx: tx.programs.agents.remember(run, "captain", "All of it."),
        lambda tx: tx.programs.imports.add(run, "lib", "https://example.com/lib.prose", inputs_schema={"a": 1}),
        lambda tx: tx.programs.runs.finish(run, "failed"),
        lambda tx: tx.programs.runs.resume(run),
        lambda tx: tx.programs.runs.finish(run, "completed"),
    ]


def _status(tx: Transaction, n: int) -> None:
    tx.telemetry.status.record("busy" if n % 2 else "idle", metadata={"n": n}, instance_id=_I)


def _usage(tx: Transaction, n: int) -> None:
    tx.telemetry.usage.sample(at=_AT + timedelta(seconds=n // 2), token_input=n, instance_id=_I)


def _tool(tx: Transaction, n: int) -> None:
    tx.telemetry.tools.record("bash", exit_code=n, instance_id=_I)


def _writes(tx: Transaction, n: int) -> None:
    writes = [Write(number, f"c{number}", Blob("text", bytes([n, number]))) for number in range(3)]
    tx.checkpoints.states.put_writes("thread", f"{n:03}", writes, task_id=f"task {n}")


def _checkpoint(tx: Transaction, n: int) -> None:
    growing: Stored = [Blob("text", f"{item} {'x' * 200}".encode()) for item in range(2 * n + 1)]
    values: dict[str, tuple[str, Stored | None]] = {"list": (str(n), growing), "plain": (str(n), Blob("text", bytes([n])))}
    tx.checkpoints.states.put(
        "thread",
        f"{n:03}",
        head=Blob("head", b"\x00"),
        parent_id=f"{n - 1:03}" if n else None,
        run_id=f"run {n}",
        metadata={"step": n},
        versions={"list": str(n), "plain": str(n)},
        values=values,
    )


def _last(tx: Transaction, run: str) -> int:
    return tx.programs.executions.list(run)[-1].id


SCRIPTS = [Script("telemetry", telemetry, _WINDOWS), Script("graph", graph), Script("program", program)]
